#include "espalier/data/sources/synthetic/rgbd.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "espalier/data/sources/source.h"
#include "espalier/data/sources/synthetic/shapes.h"

namespace espalier::data {
namespace {

constexpr uint32_t kRgbdId = 2;

enum class Relief : uint8_t { kDome, kBowl, kPlate };
constexpr std::array<Shape, 3> kShapes = {Shape::kDisc, Shape::kCross, Shape::kStripes};
constexpr std::array<const char*, 3> kReliefNames = {"dome", "bowl", "plate"};
constexpr auto kRgbdClasses = static_cast<int64_t>(kShapes.size() * kReliefNames.size());

struct DepthPicture {
  uint16_t* pixels;  // [H,W,1] u16, millimetres
  int64_t height;
  int64_t width;
};

// How far the object stands out of the ground, as a share of 4096, at a point within its circle. A dome and a
// bowl are paraboloids, which meet the ground at the rim; a plate has a sharp rim.
int64_t height_of(Relief relief, int64_t squared_distance) {
  if (relief == Relief::kPlate) return 4096;
  const int64_t bulge = 4096 - squared_distance / 4096;
  return relief == Relief::kDome ? bulge : -bulge;
}

void paint_depth(Relief relief, const Pose& pose, SampleRandom& random, const DepthPicture& picture) {
  const auto [pixels, height, width] = picture;
  // A tilted wall 1.5 to 2.5 m away, with the sensor's noise; the object stands out by about half a metre.
  const int64_t base = random.between(1500, 2500);
  const int64_t tilt_x = random.between(-300, 300);
  const int64_t tilt_y = random.between(-300, 300);
  const int64_t amplitude = random.between(400, 700);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const int64_t ground = base + tilt_x * (2 * x - width) / width + tilt_y * (2 * y - height) / height;
      pixels[y * width + x] = static_cast<uint16_t>(ground + random.between(-15, 15));
    }
  }
  for_each_pixel(pose, height, width, [&](int64_t y, int64_t x) {
    const Pose::Point p = pose.to_shape(x * kPixel + kPixel / 2, y * kPixel + kPixel / 2);
    const int64_t squared_distance = p.u * p.u + p.v * p.v;
    if (squared_distance > kRadius * kRadius) return;
    uint16_t& pixel = picture.pixels[y * picture.width + x];
    pixel = static_cast<uint16_t>(pixel - amplitude * height_of(relief, squared_distance) / 4096);
  });
}

void paint_orth(const Pose& pose, SampleRandom& random, Canvas<1>& canvas) {
  const int64_t ground = random.between(40, 215);
  canvas.fill_gradient({ground}, {random.between(40, 215)}, random);
  canvas.paint(pose, {random.between(20, 235)},
               [](const Pose::Point& p) { return p.u * p.u + p.v * p.v <= kRadius * kRadius; });
  canvas.add_noise(random.between(5, 30), random);
}

HostSplit make_rgbd_split(const SourceConfig& options, const ImageSize& size, uint32_t split_id,
                          const Progress& progress) {
  const int64_t num_samples = split_id == 0 ? options.synthetic_train : options.synthetic_test;
  const FieldSpec rgb{"rgb", SampleType::kU8, size.height, size.width, 3};
  const FieldSpec depth{"depth", SampleType::kU16, size.height, size.width, 1};
  const FieldSpec orth{"orth", SampleType::kU8, size.height, size.width, 1};
  NewField new_rgb = allocate_field(rgb, num_samples);      // [N,H,W,3] u8
  NewField new_depth = allocate_field(depth, num_samples);  // [N,H,W,1] u16
  NewField new_orth = allocate_field(orth, num_samples);    // [N,H,W,1] u8
  HostSplit split;
  split.labels.resize(static_cast<size_t>(num_samples));
  draw_samples(num_samples, "draw rgbd", progress, [&](int64_t i) {
    const int64_t label =
        i % kRgbdClasses;  // every class as often as any other, in every stretch of the data
    split.labels[static_cast<size_t>(i)] = label;
    draw_rgbd({options.data_seed, kRgbdId, split_id, static_cast<uint32_t>(i)}, label, size,
              {.rgb = reinterpret_cast<uint8_t*>(new_rgb.values.get() + i * rgb.bytes_per_sample()),
               .depth = reinterpret_cast<uint16_t*>(new_depth.values.get() + i * depth.bytes_per_sample()),
               .orth = reinterpret_cast<uint8_t*>(new_orth.values.get() + i * orth.bytes_per_sample())});
  });
  split.fields = {std::move(new_rgb.field), std::move(new_depth.field), std::move(new_orth.field)};
  return split;
}

}  // namespace

void draw_rgbd(const SampleRandom::Key& key, int64_t label, const ImageSize& size, const RgbdSample& sample) {
  SampleRandom random(key, DrawStream::kScene);
  SampleRandom noise(key, DrawStream::kNoise);
  SampleRandom depth_random(key, DrawStream::kDepth);
  SampleRandom orth_random(key, DrawStream::kOrth);
  const Pose pose = random_pose(size.height, size.width, random);
  Canvas<3> rgb(sample.rgb, size.height, size.width);
  Canvas<1> orth(sample.orth, size.height, size.width);
  paint_scene(kShapes[static_cast<size_t>(label / 3)], pose, random, noise, rgb);
  paint_depth(static_cast<Relief>(label % 3), pose, depth_random, {sample.depth, size.height, size.width});
  paint_orth(pose, orth_random, orth);
}

HostDataset make_rgbd(const SourceConfig& options, const Progress& progress) {
  const ImageSize& size = options.synthetic_size;
  check_size("--synthetic-size", size);
  HostDataset dataset;
  dataset.origin = canonical_source(options);
  for (const Shape shape : kShapes) {
    for (const char* relief : kReliefNames) {
      dataset.class_names.push_back(std::string(kShapeNames[static_cast<size_t>(shape)]) + "-" + relief);
    }
  }
  dataset.train = make_rgbd_split(options, size, 0, progress);
  dataset.test = make_rgbd_split(options, size, 1, progress);
  for (const auto& field : dataset.train.fields) {
    dataset.statistics.push_back(compute_statistics(field, dataset.train.num_samples()));
  }
  return dataset;
}

}  // namespace espalier::data
