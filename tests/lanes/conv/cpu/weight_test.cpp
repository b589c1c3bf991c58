#include "espalier/lanes/conv/cpu/weight.h"

#include <fmt/format.h>

#include <cmath>

#include "tests/lanes/compare.h"
#include "tests/support/threads.h"

namespace espalier::lanes {
namespace {

using testing::distance;
using testing::largest;

struct Case {
  int64_t batch, channels, size, filters, kernel;
  ConvGeometry geometry;
};

at::Tensor images(at::IntArrayRef sizes, at::ScalarType type) {
  const at::Tensor made = empty_images(sizes, MemoryFormat::kChannelsLast, at::TensorOptions(type));
  return made.copy_(at::randn(sizes, at::kDouble));
}

struct Inputs {
  Inputs(const Case& c, at::ScalarType type) : geometry(c.geometry) {
    torch::manual_seed(3);
    const int64_t out = (c.size + 2 * geometry.padding - c.kernel) / geometry.stride + 1;
    x = images({c.batch, c.channels, c.size, c.size}, type);
    grad = images({c.batch, c.filters, out, out}, type);
    weight = images({c.filters, c.channels / geometry.groups, c.kernel, c.kernel}, type);
  }

  at::Tensor ours() const {
    const at::Tensor grad_weight = at::full_like(weight, std::numeric_limits<double>::quiet_NaN());
    conv_weight_by_cpu(grad, x, geometry, grad_weight);
    return grad_weight;
  }
  at::Tensor torch() const {
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    return std::get<1>(at::convolution_backward(
        wide(grad), wide(x), wide(weight), at::OptionalIntArrayRef(), {geometry.stride, geometry.stride},
        {geometry.padding, geometry.padding}, {1, 1}, false, {0, 0}, geometry.groups, {false, true, false}));
  }

  ConvGeometry geometry;
  at::Tensor x, grad, weight;
};

// Every way a gradient is cut into tiles: full and narrow vectors of either side, filters left over, groups,
// depthwise with channels left over and too few for a vector; strides that leave pixels out; more samples
// than a raster holds.
const std::vector<Case> kCases{
    {5, 3, 9, 32, 3, {.padding = 1}},   // vectors of filters
    {5, 3, 9, 10, 3, {.padding = 1}},   // channels, filters left over
    {2, 40, 7, 17, 3, {.padding = 1}},  // several tiles per row of taps
    {3, 8, 11, 16, 5, {.stride = 3, .padding = 2}},
    {3, 7, 10, 9, 1, {.stride = 2}},
    {3, 24, 6, 48, 3, {.padding = 1, .groups = 3}},
    {3, 32, 6, 96, 3, {.padding = 1, .groups = 2}},
    {3, 6, 6, 12, 3, {.padding = 1, .groups = 6}},    // two filters per channel
    {4, 21, 8, 21, 3, {.padding = 1, .groups = 21}},  // depthwise
    {4, 3, 8, 3, 3, {.stride = 2, .padding = 1, .groups = 3}},
    {4, 16, 9, 16, 5, {.padding = 2, .groups = 16}},
    {4, 1, 9, 1, 3, {.padding = 1}},
    {160, 3, 32, 8, 3, {.padding = 1}},  // two rasters in double
};

std::string text(const Case& c) {
  return fmt::format("{} samples of {} channels, {} filters of {}, {} groups", c.batch, c.channels, c.filters,
                     c.kernel, c.geometry.groups);
}

TEST(ConvWeightCpu, EqualsTorchHoweverItIsCutIntoTiles) {
  for (const Case& each : kCases) {
    const Inputs in(each, at::kDouble);
    const at::Tensor got = in.ours(), want = in.torch();
    EXPECT_LE(distance(got, want), 1e-12 * largest(want)) << text(each);
    EXPECT_EQ(got.strides(), in.weight.strides()) << text(each);
  }
}

TEST(ConvWeightCpu, AddsInDoubleWhatItMultipliesInSingle) {
  for (const Case& each : kCases) {
    const Inputs in(each, at::kFloat);
    const at::Tensor want = in.torch();
    // 256 products of about 1 come to 16, in 256 roundings of either sign: 16 * 16 / 2, four times that at
    // worst.
    const double pieces = std::sqrt(static_cast<double>(in.grad.numel() / in.grad.size(1)) / 256 + 1);
    EXPECT_LE(distance(in.ours(), want), 0x1p-24 * (512 * pieces + largest(want))) << text(each);
  }
}

TEST(ConvWeightCpu, RoundsNarrowTypesOnceAtTheEnd) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Inputs in({4, 5, 7, 16, 3, {.padding = 1}}, type);
    const at::Tensor want = in.torch();
    EXPECT_LE(distance(in.ours(), want), (type == at::kHalf ? 0x1p-11 : 0x1p-8) * largest(want)) << type;
    const at::Tensor wide = at::empty_like(in.weight, at::kFloat);
    conv_weight_by_cpu(in.grad, in.x, in.geometry, wide);
    EXPECT_LE(distance(wide, want), 0x1p-18 * largest(want)) << type;
  }
}

TEST(ConvWeightCpu, GivesTheSameBitsOnAnyNumberOfThreads) {
  for (const Case& each : std::vector<Case>{{160, 3, 32, 8, 3, {.padding = 1}},
                                            {33, 16, 16, 32, 3, {.padding = 1}},
                                            {64, 24, 9, 24, 3, {.padding = 1, .groups = 24}}}) {
    const Inputs in(each, at::kFloat);
    espalier::testing::expect_same_bits_on_any_threads([&] { return testing::Tensors{in.ours()}; },
                                                       text(each));
  }
}

}  // namespace
}  // namespace espalier::lanes
