#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/machine/parallel.h"
#include "espalier/data/sources/source.h"
#include "espalier/data/sources/synthetic/draw.h"
#include "espalier/data/sources/synthetic/rgbd.h"
#include "espalier/data/sources/synthetic/shapes.h"

namespace espalier::data {
namespace {

using Maker = HostDataset (*)(const SourceConfig&, const Progress&);

SourceConfig options_of(const std::string& data, int64_t train, int64_t test,
                        const ImageSize& size = {32, 32}) {
  SourceConfig options;
  options.data = data;
  options.synthetic_train = train;
  options.synthetic_test = test;
  options.synthetic_size = size;
  return options;
}

// Both sources must keep the same promises.
struct Source {
  const char* data;
  Maker make;
  int64_t num_classes;
};

class SyntheticTest : public testing::TestWithParam<Source> {
 protected:
  HostDataset make(int64_t train, int64_t test, const ImageSize& size = {32, 32}, uint64_t seed = 0) const {
    auto options = options_of(GetParam().data, train, test, size);
    options.data_seed = seed;
    auto dataset = GetParam().make(options, {});
    check_dataset(dataset);
    return dataset;
  }
};

std::string sample_bytes(const HostField& field, int64_t i) {
  const auto size = static_cast<size_t>(field.spec.bytes_per_sample());
  return {reinterpret_cast<const char*>(field.values.get()) + static_cast<size_t>(i) * size, size};
}

std::string all_bytes(const HostSplit& split) {
  std::string bytes;
  for (const auto& field : split.fields) {
    for (int64_t i = 0; i < split.num_samples(); ++i) bytes += sample_bytes(field, i);
  }
  return bytes;
}

// FNV-1a, 64 bits.
uint64_t hash_of(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

// Pins the process to one core while it lives: parallel_ranges() then runs on one thread.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_{};
};

TEST_P(SyntheticTest, IsTheSameOnOneCoreAsOnAll) {
  const auto all = make(300, 70);
  const OneCore one_core;
  ASSERT_EQ(num_cores(), 1);
  const auto one = make(300, 70);
  EXPECT_EQ(all_bytes(one.train), all_bytes(all.train));
  EXPECT_EQ(all_bytes(one.test), all_bytes(all.test));
}

TEST_P(SyntheticTest, DrawsASampleWhateverTheNumberOfOthers) {
  const auto many = make(150, 40);
  const auto few = make(7, 90);
  for (size_t f = 0; f < many.train.fields.size(); ++f) {
    for (int64_t i = 0; i < 7; ++i) {
      EXPECT_EQ(sample_bytes(many.train.fields[f], i), sample_bytes(few.train.fields[f], i));
      EXPECT_EQ(sample_bytes(many.test.fields[f], i), sample_bytes(few.test.fields[f], i));
    }
  }
}

TEST_P(SyntheticTest, NeverDrawsTheSamePictureTwice) {
  // More samples than the threads' ranges times the classes, so that a number local to a range would repeat.
  constexpr int64_t kSamples = 1000;
  const auto first = make(kSamples, kSamples, {8, 8});
  const auto second = make(kSamples, kSamples, {8, 8}, 1);
  std::set<std::string> seen;
  for (const auto* split : {&first.train, &first.test, &second.train, &second.test}) {
    for (const auto& field : split->fields) {
      for (int64_t i = 0; i < kSamples; ++i) seen.insert(field.spec.name + sample_bytes(field, i));
    }
  }
  EXPECT_EQ(seen.size(), 4 * kSamples * first.train.fields.size());
}

TEST_P(SyntheticTest, UsesEveryBitOfTheSeed) {
  const auto high = make(1, 1, {32, 32}, uint64_t{1} << 63);
  const auto low = make(1, 1, {32, 32}, 0);
  EXPECT_NE(all_bytes(high.train), all_bytes(low.train));
}

TEST_P(SyntheticTest, BalancesTheClasses) {
  const int64_t num_classes = GetParam().num_classes;
  const auto dataset = make(num_classes * 11, num_classes * 3);
  EXPECT_EQ(dataset.num_classes(), num_classes);
  for (int64_t label = 0; label < num_classes; ++label) {
    EXPECT_EQ(std::count(dataset.train.labels.begin(), dataset.train.labels.end(), label), 11);
    EXPECT_EQ(std::count(dataset.test.labels.begin(), dataset.test.labels.end(), label), 3);
  }
}

TEST_P(SyntheticTest, DrawsAnySize) {
  for (const ImageSize size : {ImageSize{1, 1}, ImageSize{1, 50}, ImageSize{33, 17}, ImageSize{130, 96}}) {
    const auto dataset = make(12, 3, size);
    for (const auto& field : dataset.train.fields) {
      EXPECT_EQ(field.spec.height, size.height);
      EXPECT_EQ(field.spec.width, size.width);
    }
  }
}

TEST_P(SyntheticTest, RefusesASizeThatIsNone) {
  EXPECT_THROW(make(1, 1, ImageSize{32, -1}), UsageError);
  EXPECT_THROW(make(1, 1, ImageSize{0, 32}), UsageError);
}

TEST_P(SyntheticTest, TellsItsOriginWithTheSeed) {
  EXPECT_EQ(make(2, 1, ImageSize{8, 8}, 5).origin,
            std::string(GetParam().data) + "?seed=5&train=2&test=1&size=8x8");
}

TEST_P(SyntheticTest, TellsItsProgress) {
  std::vector<int64_t> done;
  GetParam().make(options_of(GetParam().data, 100, 50, {8, 8}),
                  [&](std::string_view what, int64_t now, int64_t total) {
                    EXPECT_TRUE(what.starts_with("draw "));
                    EXPECT_LE(now, total);
                    if (total == 100) done.push_back(now);
                  });
  EXPECT_GT(done.size(), 3u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), 100);
}

INSTANTIATE_TEST_SUITE_P(Sources, SyntheticTest,
                         testing::Values(Source{"synthetic:shapes10", make_shapes10, 10},
                                         Source{"synthetic:rgbd", make_rgbd, 9}),
                         [](const auto& info) { return std::string(info.param.data).substr(10); });

TEST(Shapes10, GivesTheSameBytesOnEveryBuild) {
  const auto dataset = make_shapes10(options_of("synthetic:shapes10", 20, 10), {});
  EXPECT_EQ(hash_of(all_bytes(dataset.train)), 0xeca145e2c6890792u);
  EXPECT_EQ(hash_of(all_bytes(dataset.test)), 0xc547916b6282e202u);
  const auto large = make_shapes10(options_of("synthetic:shapes10", 3, 1, {65, 130}), {});
  EXPECT_EQ(hash_of(all_bytes(large.train)), 0x6d0dd74dc7ff3d26u);
}

TEST(Rgbd, GivesTheSameBytesOnEveryBuild) {
  const auto dataset = make_rgbd(options_of("synthetic:rgbd", 18, 9), {});
  EXPECT_EQ(hash_of(all_bytes(dataset.train)), 0x3beed2740c6caaf7u);
  EXPECT_EQ(hash_of(all_bytes(dataset.test)), 0xee29d09334d8b177u);
}

TEST(Shapes10, HasOneColourField) {
  const auto dataset = make_shapes10(options_of("synthetic:shapes10", 10, 10), {});
  ASSERT_EQ(dataset.train.fields.size(), 1u);
  EXPECT_EQ(dataset.train.fields[0].spec, (FieldSpec{"image", SampleType::kU8, 32, 32, 3}));
}

TEST(Rgbd, HasColourDepthInMillimetresAndOrth) {
  const auto dataset = make_rgbd(options_of("synthetic:rgbd", 90, 9), {});
  ASSERT_EQ(dataset.train.fields.size(), 3u);
  EXPECT_EQ(dataset.train.fields[0].spec, (FieldSpec{"rgb", SampleType::kU8, 32, 32, 3}));
  EXPECT_EQ(dataset.train.fields[1].spec, (FieldSpec{"depth", SampleType::kU16, 32, 32, 1}));
  EXPECT_EQ(dataset.train.fields[2].spec, (FieldSpec{"orth", SampleType::kU8, 32, 32, 1}));
  const auto* depth = reinterpret_cast<const uint16_t*>(dataset.train.fields[1].values.get());
  EXPECT_GE(*std::min_element(depth, depth + 90 * 32 * 32), 150);
  EXPECT_LE(*std::max_element(depth, depth + 90 * 32 * 32), 4000);
}

// With this no network, however good, can tell one factor from the other's field.
TEST(Rgbd, ShowsTheShapeOnlyInRgbAndTheReliefOnlyInDepth) {
  constexpr size_t kPixels = 20 * 24;
  for (uint32_t sample = 0; sample < 20; ++sample) {
    std::array<std::vector<uint8_t>, 9> rgb;     // [9][H*W*3]
    std::array<std::vector<uint16_t>, 9> depth;  // [9][H*W]
    std::array<std::vector<uint8_t>, 9> orth;    // [9][H*W]
    for (size_t label = 0; label < 9; ++label) {
      rgb[label].resize(kPixels * 3);
      depth[label].resize(kPixels);
      orth[label].resize(kPixels);
      draw_rgbd({.seed = 3, .source = 2, .split = 0, .sample = sample}, static_cast<int64_t>(label), {20, 24},
                {rgb[label].data(), depth[label].data(), orth[label].data()});
    }
    for (size_t a = 0; a < 9; ++a) {
      for (size_t b = 0; b < 9; ++b) {
        EXPECT_EQ(rgb[a] == rgb[b], a / 3 == b / 3) << a << " and " << b;
        EXPECT_EQ(depth[a] == depth[b], a % 3 == b % 3) << a << " and " << b;
        EXPECT_EQ(orth[a] == orth[b], true) << a << " and " << b;
      }
    }
  }
}

TEST(Rgbd, NamesItsClassesByShapeAndRelief) {
  const auto dataset = make_rgbd(options_of("synthetic:rgbd", 9, 9), {});
  EXPECT_EQ(dataset.class_names[0], "disc-dome");
  EXPECT_EQ(dataset.class_names[5], "cross-plate");
  EXPECT_EQ(dataset.class_names[7], "stripes-bowl");
}

// Mirrored drawings of a shape must be drawings of the same shape, or random flips would change the label.
TEST(Shapes, EqualTheirOwnMirrorImage) {
  constexpr int64_t kStep = 64;
  for (size_t s = 0; s < kShapeNames.size(); ++s) {
    const auto shape = static_cast<Shape>(s);
    // Mirrored at the vertical axis, or for the checker at a diagonal.
    int64_t num_differ_axis = 0;
    int64_t num_differ_diagonal = 0;
    int64_t num_inside = 0;
    for (int64_t u = -kRadius; u <= kRadius; u += kStep) {
      for (int64_t v = -kRadius; v <= kRadius; v += kStep) {
        const bool inside = is_inside(shape, {u, v});
        num_inside += inside ? 1 : 0;
        num_differ_axis += inside != is_inside(shape, {-u, v}) ? 1 : 0;
        num_differ_diagonal += inside != is_inside(shape, {v, u}) ? 1 : 0;
      }
    }
    EXPECT_GT(num_inside, 1000) << kShapeNames[s];
    EXPECT_LT(std::min(num_differ_axis, num_differ_diagonal), num_inside / 50) << kShapeNames[s];
  }
}

TEST(Shapes, LieWithinTheirRadius) {
  for (size_t s = 0; s < kShapeNames.size(); ++s) {
    for (int64_t u = -2 * kRadius; u <= 2 * kRadius; u += 32) {
      for (int64_t v = -2 * kRadius; v <= 2 * kRadius; v += 32) {
        if (!is_inside(static_cast<Shape>(s), {u, v})) continue;
        ASSERT_LE(u * u + v * v, kRadius * kRadius) << kShapeNames[s] << " at " << u << ", " << v;
      }
    }
  }
}

TEST(Pose, TurnsWithoutStretching) {
  for (uint32_t sample = 0; sample < 200; ++sample) {
    SampleRandom random({.seed = 1, .source = 9, .split = 0, .sample = sample}, DrawStream::kScene);
    const Pose pose({.x = 1000, .y = -500, .radius = 2048}, random);
    const auto centre = pose.to_shape(1000, -500);
    EXPECT_EQ(centre.u, 0);
    EXPECT_EQ(centre.v, 0);
    const auto rim = pose.to_shape(1000 + 2048, -500);  // one radius away
    const auto length_squared = static_cast<double>(rim.u * rim.u + rim.v * rim.v);
    EXPECT_NEAR(length_squared / static_cast<double>(kRadius * kRadius), 1.0, 0.002);
  }
}

TEST(Pose, TurnsInEveryDirection) {
  std::set<std::pair<bool, bool>> quadrants;
  std::set<bool> steepness;
  for (uint32_t sample = 0; sample < 100; ++sample) {
    SampleRandom random({.seed = 1, .source = 9, .split = 0, .sample = sample}, DrawStream::kScene);
    const Pose pose({.x = 0, .y = 0, .radius = 2048}, random);
    const auto rim = pose.to_shape(2048, 0);
    quadrants.insert({rim.u > 0, rim.v > 0});
    steepness.insert(std::abs(rim.u) > std::abs(rim.v));
  }
  EXPECT_EQ(quadrants.size(), 4u);
  EXPECT_EQ(steepness.size(), 2u);
}

}  // namespace
}  // namespace espalier::data
