#include "espalier/grow/lane_branch.h"

#include "tests/lanes/lane_compare.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using lanes::testing::Dice;
using lanes::testing::expect_contracts;
using lanes::testing::Layer;
using lanes::testing::random_lanes;
using lanes::testing::Tensors;

// Sizes with gaps between lanes, and loops that end in a vector's tail.
std::vector<int64_t> random_sizes(Dice& dice) {
  return {dice.roll(1, 5), dice.roll(1, 4), dice.roll(1, 9), dice.roll(1, 7), dice.roll(1, 7)};
}

TEST(LaneBranch, ForkAddsTheGradientsOfBothBranches) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    // A residual sum of both branches: the gradients of x are added by the fork.
    expect_contracts({.stacked =
                          [](const Tensors& in) {
                            const auto [a, b] = lane_fork(in[0]);
                            return lane_residual(a, b, Residual::kSumRelu);
                          },
                      .torch = [](const Tensors& in) { return at::relu(in[0] + in[0]); },
                      .inputs = {random_lanes(random_sizes(dice))}});
  }
}

TEST(LaneBranch, ForkCostsNothingForward) {
  const at::Tensor x = at::randn({2, 3, 4, 5, 6}).set_requires_grad(true);
  const auto [a, b] = lane_fork(x);
  EXPECT_EQ(a.data_ptr(), x.data_ptr());
  EXPECT_EQ(b.data_ptr(), x.data_ptr());
}

TEST(LaneBranch, ForkPassesTheOnlyGradientOn) {
  const at::Tensor x = at::randn({2, 3, 4, 5, 6}).set_requires_grad(true);
  const at::Tensor grad = at::randn(x.sizes());
  const auto [a, b] = lane_fork(x);
  EXPECT_TRUE(at::equal(torch::autograd::grad({b}, {x}, {grad})[0], grad));
}

TEST(LaneBranch, ResidualEqualsTorchLaneByLane) {
  for (const Residual kind : {Residual::kSum, Residual::kSumRelu, Residual::kRectifiedSum})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Dice dice(seed);
      const auto sizes = random_sizes(dice);
      const Layer layer{.stacked = [=](const Tensors& in) { return lane_residual(in[0], in[1], kind); },
                        .torch =
                            [=](const Tensors& in) {
                              if (kind == Residual::kRectifiedSum) return in[0] + at::relu(in[1]);
                              return kind == Residual::kSum ? in[0] + in[1] : at::relu(in[0] + in[1]);
                            },
                        .inputs = {random_lanes(sizes), random_lanes(sizes)}};
      lanes::testing::expect_equals_torch(layer);
      lanes::testing::expect_same_alone(layer);
      lanes::testing::expect_isolated(layer);
      // The others hand the gradient that they get to x as it is.
      if (kind == Residual::kSumRelu) lanes::testing::expect_layout(layer);
    }
}

TEST(LaneBranch, RectifiedSumLetsABranchLeaveZero) {
  const at::Tensor x = at::ones({1, 1, 1, 1, 3}), y = at::tensor({-1.f, 0.f, 1.f}).view({1, 1, 1, 1, 3});
  y.set_requires_grad(true);
  const at::Tensor out = lane_residual(x, y, Residual::kRectifiedSum);
  EXPECT_TRUE(at::equal(out.detach().view({3}), at::tensor({1.f, 1.f, 2.f})));
  EXPECT_TRUE(at::equal(torch::autograd::grad({out}, {y}, {at::ones_like(out)})[0].view({3}),
                        at::tensor({0.f, 1.f, 1.f})));
}

TEST(LaneBranch, MixEqualsTorchLaneByLane) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto sizes = random_sizes(dice);
    expect_contracts({.stacked = [](const Tensors& in) { return lane_mix(in[0], in[1], in[2]); },
                      .torch = [](const Tensors& in) { return in[0] + in[2] * (in[1] - in[0]); },
                      .inputs = {random_lanes(sizes), random_lanes(sizes), random_lanes({sizes[0], 1})}});
  }
}

TEST(LaneBranch, ScaleEqualsTorchLaneByLane) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto sizes = random_sizes(dice);
    expect_contracts({.stacked = [](const Tensors& in) { return lane_scale(in[0], in[1]); },
                      .torch = [](const Tensors& in) { return in[0] * in[1].unsqueeze(-1).unsqueeze(-1); },
                      .inputs = {random_lanes(sizes), random_lanes({sizes[0], sizes[1], sizes[2]})}});
  }
}

TEST(LaneBranch, CurvesEqualTorchLaneByLaneAtAnyNumberOfLanes) {
  for (const Curve curve : {Curve::kRelu, Curve::kSigmoid, Curve::kTanh})
    for (const int64_t values : {1, 7, 16, 33})
      expect_contracts({.stacked = [=](const Tensors& in) { return lane_curve(in[0], curve); },
                        .torch =
                            [=](const Tensors& in) {
                              if (curve == Curve::kRelu) return at::relu(in[0]);
                              return curve == Curve::kSigmoid ? at::sigmoid(in[0]) : at::tanh(in[0]);
                            },
                        .inputs = {random_lanes({5, values})}});
}

TEST(LaneBranch, GradientsEqualFiniteDifferences) {
  Dice dice(3);
  lanes::testing::expect_finite_differences(
      {.stacked =
           [](const Tensors& in) {
             return lane_scale(lane_mix(in[0], in[1], lane_curve(in[2], Curve::kTanh)),
                               lane_curve(in[3], Curve::kSigmoid));
           },
       .torch = {},
       .inputs = {random_lanes({2, 2, 3, 2, 2}), random_lanes({2, 2, 3, 2, 2}), random_lanes({2, 1}),
                  random_lanes({2, 2, 3})}});
}

TEST(LaneBranch, NamesTheArgumentOfOtherSizes) {
  const at::Tensor x = random_lanes({2, 3, 4, 5, 6});
  EXPECT_ERROR(lane_residual(x, random_lanes({2, 3, 4, 5, 5}), Residual::kSum), c10::Error,
               "lane_residual: y");
  EXPECT_ERROR(lane_mix(x, x, random_lanes({3, 1})), c10::Error, "lane_mix: t", "[E,1]");
  EXPECT_ERROR(lane_scale(x, random_lanes({2, 3, 5})), c10::Error, "lane_scale: scale", "[E,B,C]");
}

}  // namespace
}  // namespace espalier::grow
