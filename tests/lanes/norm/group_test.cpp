#include "espalier/lanes/norm/layer.h"
#include "tests/lanes/compare.h"
#include "tests/lanes/norm/torch_norm.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#include "tests/support/threads.h"

namespace espalier::lanes {
namespace {

using testing::activated;
using testing::Dice;
using testing::Layer;
using testing::over_valid;
using testing::random_lanes;
using testing::random_mask;
using testing::Tensors;

Layer group_norm_layer(at::IntArrayRef sizes, int64_t groups, Activation activation, const at::Tensor& mask) {
  const int64_t lanes = sizes[0], channels = sizes[2];
  return {.stacked =
              [=](const Tensors& in) {
                return lane_group_norm(in[0], in[1], in[2],
                                       {.groups = groups, .mask = in[3], .activation = activation});
              },
          .torch =
              [=](const Tensors& in) {
                return activated(
                    over_valid(in[0], in[3],
                               [&](const at::Tensor& x) { return at::group_norm(x, groups, in[1], in[2]); }),
                    activation);
              },
          .inputs = {random_lanes(sizes), random_lanes({lanes, channels}), random_lanes({lanes, channels}),
                     mask}};
}

void expect_group_norm_contracts() {
  for (uint64_t seed = 0; seed < testing::num_seeds(16); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int64_t lanes = dice.roll(1, 5), batch = dice.roll(1, 7), groups = dice.roll(1, 4);
    const at::Tensor mask = dice.roll(0, 1) ? random_mask(lanes, batch, 1) : at::Tensor();
    testing::expect_contracts(
        group_norm_layer({lanes, batch, groups * dice.roll(1, 5), dice.roll(2, 6), dice.roll(1, 6)}, groups,
                         dice.roll(0, 1) ? Activation::kRelu : Activation::kNone, mask));
  }
}

TEST(LaneGroupNorm, EqualsTorchLaneByLaneOverRandomShapesAndMasks) {
  expect_group_norm_contracts();
}

TEST(LaneGroupNormCuda, EqualsTorchLaneByLaneOverRandomShapesAndMasks) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_group_norm_contracts();
  testing::expect_contracts(group_norm_layer({2, 5, 64, 16, 16}, 4, Activation::kRelu, random_mask(2, 5, 1)));
  testing::expect_contracts(group_norm_layer({2, 3, 24, 7, 5}, 3, Activation::kNone, {}));
  // Vectors of channels that lie in several groups.
  testing::expect_contracts(group_norm_layer({2, 5, 8, 9, 7}, 8, Activation::kRelu, random_mask(2, 5, 1)));
  testing::expect_contracts(group_norm_layer({1, 3, 48, 4, 4}, 12, Activation::kNone, {}));
}

TEST(LaneGroupNormCuda, LosesNoDigitsWhereAGroupsFirstValueLiesFarFromAllOthers) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  for (const double mean : {100.0, -3.0}) {
    Layer layer = group_norm_layer({1, 1, 16, 224, 224}, 1, Activation::kNone, {});
    const at::Tensor x = layer.inputs[0] * 0.003 * mean + mean;
    x.slice(3, 0, 1).slice(4, 0, 1).zero_();
    layer.inputs[0] = testing::stacked_copy(x, at::kDouble);
    testing::expect_equals_torch(layer, {at::kBFloat16, at::kHalf});
    testing::expect_same_alone(layer);
  }
}

// Sums of all channels and groups take more shared memory than a kernel has without asking.
TEST(LaneGroupNormCuda, TakesThousandsOfChannels) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  testing::expect_equals_torch(group_norm_layer({1, 2, 4096, 2, 1}, 32, Activation::kNone, {}));
}

// A ReLU before the norm, in its own loops where these take it: not of f64 on the CPU.
Layer rectified_layer(at::IntArrayRef sizes, int64_t groups) {
  const std::vector<int64_t> channels{sizes[0], sizes[2]};
  return {.stacked =
              [=](const Tensors& in) {
                return takes_rectified(in[0])
                           ? lane_group_norm(in[0], in[1], in[2], {.groups = groups, .is_rectified = true})
                           : lane_group_norm(in[0].relu(), in[1], in[2], {.groups = groups});
              },
          .torch = [=](const Tensors& in) { return at::group_norm(in[0].relu(), groups, in[1], in[2]); },
          .inputs = {random_lanes(sizes), random_lanes(channels), random_lanes(channels)}};
}

// The same, or without the ReLU, and a sum after it.
Layer beside_layer(at::IntArrayRef sizes, int64_t groups, bool is_rectified) {
  Layer layer = rectified_layer(sizes, groups);
  layer.inputs.push_back(random_lanes(sizes));
  layer.stacked = [=](const Tensors& in) {
    if (takes_rectified(in[0]))
      return lane_group_norm(in[0], in[1], in[2],
                             {.groups = groups, .is_rectified = is_rectified, .residual = in[3]});
    return lane_group_norm(is_rectified ? in[0].relu() : in[0], in[1], in[2], {.groups = groups}) + in[3];
  };
  layer.torch = [=](const Tensors& in) {
    return at::group_norm(is_rectified ? in[0].relu() : in[0], groups, in[1], in[2]) + in[3];
  };
  return layer;
}

struct GroupedShape {
  std::vector<int64_t> sizes;
  int64_t groups;
};

void expect_relus_before() {
  for (const GroupedShape& shape :
       {GroupedShape{{2, 3, 8, 6, 5}, 8}, {{3, 2, 64, 4, 4}, 4}, {{1, 2, 6, 3, 3}, 3}})
    testing::expect_contracts(rectified_layer(shape.sizes, shape.groups));
}

TEST(LaneGroupNorm, TakesTheReluBeforeIt) {
  EXPECT_TRUE(takes_rectified(empty_lanes({2, 3, 8, 6, 5}, at::kFloat)));
  EXPECT_TRUE(takes_rectified(empty_lanes({2, 3, 8, 6, 5}, at::kBFloat16)));
  expect_relus_before();
}

TEST(LaneGroupNormCuda, TakesTheReluBeforeIt) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_relus_before();
}

TEST(LaneGroupNorm, AddsWhatItStandsBeside) {
  for (const bool is_rectified : {false, true})
    testing::expect_contracts(beside_layer({2, 3, 16, 6, 5}, 2, is_rectified));
}

TEST(LaneGroupNormCuda, AddsWhatItStandsBeside) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  for (const bool is_rectified : {false, true})
    testing::expect_contracts(beside_layer({2, 3, 16, 6, 5}, 2, is_rectified));
}

// Batches of several parts, samples shorter than a vector, channels beyond the length of a run of sums.
TEST(LaneGroupNorm, EqualsTorchWhereABatchIsAddedUpInParts) {
  for (const GroupedShape& shape : {GroupedShape{{2, 9, 16, 32, 32}, 4},
                                    {{3, 2, 4, 1, 1}, 2},
                                    {{1, 3, 130, 3, 2}, 10},
                                    {{2, 70, 24, 6, 5}, 3}}) {
    SCOPED_TRACE(c10::Join("x", shape.sizes));
    testing::expect_equals_torch(group_norm_layer(shape.sizes, shape.groups, Activation::kRelu, {}));
    testing::expect_contracts(beside_layer(shape.sizes, shape.groups, /*is_rectified=*/true));
  }
}

TEST(LaneGroupNorm, GivesTheSameBitsOnAnyNumberOfThreads) {
  torch::manual_seed(13);
  const Layer layer = beside_layer({3, 21, 8, 33, 32}, 4, /*is_rectified=*/true);
  const at::Tensor grad = testing::output_grad(layer);
  for (const auto type : {at::kFloat, at::kBFloat16})
    espalier::testing::expect_same_bits_on_any_threads(
        [&] { return testing::run(layer.stacked, testing::leaves(layer.inputs, type), grad); });
}

TEST(LaneGroupNorm, RefusesAReluBeforeItBesideAMask) {
  const at::Tensor x = testing::stacked_copy(testing::random_lanes({2, 3, 4, 5, 5}), at::kFloat),
                   weight = at::ones({2, 4});
  EXPECT_ERROR(lane_group_norm(x, weight, weight,
                               {.groups = 2, .mask = at::ones({2, 3}, at::kBool), .is_rectified = true}),
               c10::Error, "lane_group_norm: is_rectified", "without a mask");
}

TEST(LaneGroupNorm, RefusesAResidualWhereNoKernelAddsIt) {
  const at::Tensor x = testing::random_lanes({2, 3, 4, 5, 5}), weight = at::ones({2, 4});
  EXPECT_ERROR(lane_group_norm(x, weight, weight, {.groups = 2, .residual = x}), c10::Error,
               "lane_group_norm: residual", "CUDA");
}

TEST(LaneGroupNorm, RefusesAResidualOfAnotherType) {
  const at::Tensor x = testing::random_lanes({2, 3, 4, 5, 5}), weight = at::ones({2, 4});
  EXPECT_ERROR(
      lane_group_norm(x, weight, weight, {.groups = 2, .residual = testing::stacked_copy(x, at::kBFloat16)}),
      c10::Error, "lane_group_norm: residual", "Double", "BFloat16");
}

TEST(LaneGroupNorm, HasTheGradientsOfFiniteDifferences) {
  torch::manual_seed(12);
  testing::expect_finite_differences(
      group_norm_layer({2, 3, 4, 2, 2}, 2, Activation::kNone, random_mask(2, 3, 1)));
}

// As a network's first layer has them: images want no gradient.
TEST(LaneGroupNorm, HasTheSameGradientsWhereItsInputWantsNone) {
  for (const MemoryFormat format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    const at::Tensor x = empty_lanes({2, 3, 8, 4, 4}, at::kFloat, format);
    x.copy_(at::randn(x.sizes()));
    LaneGroupNorm norm(2, 4, 8, at::kFloat);
    const auto gradients = [&](const at::Tensor& from) {
      const Tensors leaves{norm.weight.value(), norm.bias.value()};
      return torch::autograd::grad({norm.forward(from).square().sum()}, leaves);
    };
    const Tensors alone = gradients(x), with_x = gradients(x.detach().requires_grad_());
    for (size_t i = 0; i < 2; ++i) testing::expect_same_bits(alone[i], with_x[i], "gradient");
  }
}

}  // namespace
}  // namespace espalier::lanes
