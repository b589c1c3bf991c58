// synthetic:shapes10: ten classes of drawn shapes, for trying things without a download.
//
// No pixel says anything about the class by itself: a linear model stays near chance, far under 60 %, while a
// small convolutional network passes 90 % in a few epochs.
#include <cstdint>
#include <utility>

#include "espalier/data/sources/source.h"
#include "espalier/data/sources/synthetic/shapes.h"

namespace espalier::data {
namespace {

constexpr uint32_t kShapes10Id = 1;
constexpr auto kShapes10Classes = static_cast<int64_t>(kShapeNames.size());

void draw_sample(const SampleRandom::Key& key, Shape shape, Canvas<3> canvas) {
  SampleRandom random(key, DrawStream::kScene);
  SampleRandom noise(key, DrawStream::kNoise);
  const Pose pose = random_pose(canvas.height(), canvas.width(), random);
  paint_scene(shape, pose, random, noise, canvas);
}

HostSplit make_shapes10_split(const SourceConfig& options, const ImageSize& size, uint32_t split_id,
                              const Progress& progress) {
  const int64_t num_samples = split_id == 0 ? options.synthetic_train : options.synthetic_test;
  const FieldSpec spec{"image", SampleType::kU8, size.height, size.width, 3};
  NewField image = allocate_field(spec, num_samples);  // [N,H,W,3] u8
  HostSplit split;
  split.labels.resize(static_cast<size_t>(num_samples));
  draw_samples(num_samples, "draw shapes10", progress, [&](int64_t i) {
    const int64_t label =
        i % kShapes10Classes;  // every class as often as any other, in every stretch of the data
    split.labels[static_cast<size_t>(i)] = label;
    auto* pixels = reinterpret_cast<uint8_t*>(image.values.get() + i * spec.bytes_per_sample());
    draw_sample({options.data_seed, kShapes10Id, split_id, static_cast<uint32_t>(i)},
                static_cast<Shape>(label), {pixels, size.height, size.width});
  });
  split.fields = {std::move(image.field)};
  return split;
}

}  // namespace

HostDataset make_shapes10(const SourceConfig& options, const Progress& progress) {
  const ImageSize& size = options.synthetic_size;
  check_size("--synthetic-size", size);
  HostDataset dataset;
  dataset.origin = canonical_source(options);
  dataset.class_names.assign(kShapeNames.begin(), kShapeNames.end());
  dataset.train = make_shapes10_split(options, size, 0, progress);
  dataset.test = make_shapes10_split(options, size, 1, progress);
  dataset.statistics = {compute_statistics(dataset.train.fields[0], dataset.train.num_samples())};
  return dataset;
}

}  // namespace espalier::data
