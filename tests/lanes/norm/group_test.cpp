#include "espalier/lanes/norm/layer.h"
#include "tests/lanes/compare.h"
#include "tests/lanes/norm/torch_norm.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

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

TEST(LaneGroupNormCuda, TakesTheReluBeforeIt) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  struct Shape {
    std::vector<int64_t> sizes;
    int64_t groups;
  };
  for (const Shape& shape : {Shape{{2, 3, 8, 6, 5}, 8}, {{3, 2, 64, 4, 4}, 4}, {{1, 2, 6, 3, 3}, 3}}) {
    const testing::Layer layer{.stacked =
                                   [&](const testing::Tensors& in) {
                                     return lane_group_norm(in[0], in[1], in[2],
                                                            {.groups = shape.groups, .is_rectified = true});
                                   },
                               .torch =
                                   [&](const testing::Tensors& in) {
                                     return at::group_norm(in[0].relu(), shape.groups, in[1], in[2]);
                                   },
                               .inputs = {testing::random_lanes(shape.sizes),
                                          testing::random_lanes({shape.sizes[0], shape.sizes[2]}),
                                          testing::random_lanes({shape.sizes[0], shape.sizes[2]})}};
    testing::expect_contracts(layer);
  }
}

TEST(LaneGroupNormCuda, AddsWhatItStandsBeside) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  for (const bool is_rectified : {false, true}) {
    const std::vector<int64_t> sizes{2, 3, 16, 6, 5};
    const testing::Layer layer{
        .stacked =
            [&](const testing::Tensors& in) {
              return lane_group_norm(in[0], in[1], in[2],
                                     {.groups = 2, .is_rectified = is_rectified, .residual = in[3]});
            },
        .torch =
            [&](const testing::Tensors& in) {
              return at::group_norm(is_rectified ? in[0].relu() : in[0], 2, in[1], in[2]) + in[3];
            },
        .inputs = {testing::random_lanes(sizes), testing::random_lanes({2, 16}),
                   testing::random_lanes({2, 16}), testing::random_lanes(sizes)}};
    testing::expect_contracts(layer);
  }
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
