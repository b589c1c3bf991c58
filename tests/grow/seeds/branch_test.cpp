#include "espalier/grow/seeds/branch.h"

#include <cfenv>

#include "espalier/lanes/active.h"
#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using lanes::testing::Dice;
using lanes::testing::expect_contracts;
using lanes::testing::Layer;
using lanes::testing::random_lanes;
using lanes::testing::Tensors;

// Sizes with gaps between lanes, and loops that end in a vector's tail; on CUDA also whole vectors.
std::vector<int64_t> random_sizes(Dice& dice) {
  const int64_t vector = lanes::testing::test_device().is_cpu() || dice.roll(0, 1) ? 1 : 8;
  return {dice.roll(1, 5), dice.roll(1, 4), vector * dice.roll(1, 9), dice.roll(1, 7), dice.roll(1, 7)};
}

void expect_fork_to_add() {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    // A residual sum of both branches: the gradients of x are added by the fork.
    expect_contracts({.stacked =
                          [](const Tensors& in) {
                            const auto [a, b] = lane_fork(in[0]);
                            return lane_residual(a, lane_curve(b, Curve::kSigmoid));
                          },
                      .torch = [](const Tensors& in) { return in[0] + at::sigmoid(in[0]); },
                      .inputs = {random_lanes(random_sizes(dice))}});
  }
}

TEST(LaneBranch, ForkAddsTheGradientsOfBothBranches) {
  expect_fork_to_add();
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

void expect_residuals() {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto sizes = random_sizes(dice);
    const Layer layer{.stacked = [](const Tensors& in) { return lane_residual(in[0], in[1]); },
                      .torch = [](const Tensors& in) { return in[0] + in[1]; },
                      .inputs = {random_lanes(sizes), random_lanes(sizes)}};
    lanes::testing::expect_equals_torch(layer);
    lanes::testing::expect_same_alone(layer);
    lanes::testing::expect_isolated(layer);
  }
}

TEST(LaneBranch, ResidualEqualsTorchLaneByLane) {
  expect_residuals();
}

void expect_mixes() {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto sizes = random_sizes(dice);
    expect_contracts({.stacked = [](const Tensors& in) { return lane_mix(in[0], in[1], in[2]); },
                      .torch = [](const Tensors& in) { return in[0] + in[2] * (in[1] - in[0]); },
                      .inputs = {random_lanes(sizes), random_lanes(sizes), random_lanes({sizes[0], 1})}});
  }
}

TEST(LaneBranch, MixEqualsTorchLaneByLane) {
  expect_mixes();
}

void expect_scales() {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto sizes = random_sizes(dice);
    expect_contracts({.stacked = [](const Tensors& in) { return lane_scale(in[0], in[1]); },
                      .torch = [](const Tensors& in) { return in[0] * in[1].unsqueeze(-1).unsqueeze(-1); },
                      .inputs = {random_lanes(sizes), random_lanes({sizes[0], sizes[1], sizes[2]})}});
  }
}

TEST(LaneBranch, ScaleEqualsTorchLaneByLane) {
  expect_scales();
}

void expect_curves() {
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

TEST(LaneBranch, CurvesEqualTorchLaneByLaneAtAnyNumberOfLanes) {
  expect_curves();
}

void expect_finite_differences() {
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

TEST(LaneBranch, GradientsEqualFiniteDifferences) {
  expect_finite_differences();
}

TEST(LaneBranchCuda, EqualsTorchLaneByLaneOverRandomShapes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const lanes::testing::OnCuda cuda;
  expect_fork_to_add();
  expect_residuals();
  expect_mixes();
  expect_scales();
  expect_curves();
  expect_finite_differences();
}

// More values than one block takes at once, in samples and in channels.
TEST(LaneBranchCuda, EqualsTorchWhereASampleIsLarge) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const lanes::testing::OnCuda cuda;
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 3, 24, 17, 16}, {1, 2, 2056, 2, 1}, {2, 1, 3, 40, 40}, {2, 300, 8, 1, 1}}) {
    expect_contracts({.stacked = [](const Tensors& in) { return lane_mix(in[0], in[1], in[2]); },
                      .torch = [](const Tensors& in) { return in[0] + in[2] * (in[1] - in[0]); },
                      .inputs = {random_lanes(sizes), random_lanes(sizes), random_lanes({sizes[0], 1})}});
    expect_contracts({.stacked = [](const Tensors& in) { return lane_scale(in[0], in[1]); },
                      .torch = [](const Tensors& in) { return in[0] * in[1].unsqueeze(-1).unsqueeze(-1); },
                      .inputs = {random_lanes(sizes), random_lanes({sizes[0], sizes[1], sizes[2]})}});
  }
}

// Narrow images with factors of the master type, as seeds have them.
TEST(LaneBranchCuda, TakesNarrowImagesWithMasters) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const lanes::testing::OnCuda cuda;
  const at::Tensor wide = random_lanes({3, 2, 16, 3, 3}), factors = random_lanes({3, 2, 16});
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = lanes::testing::stacked_copy(wide, type).set_requires_grad(true);
    const at::Tensor scale = lanes::testing::stacked_copy(factors, at::kFloat).set_requires_grad(true);
    const at::Tensor t = lanes::testing::stacked_copy(factors.select(2, 0).slice(1, 0, 1), at::kFloat);
    const at::Tensor out = lane_scale(lane_mix(x, x, t), scale);
    const auto grads = torch::autograd::grad({out}, {x, scale}, {at::ones_like(out)});
    EXPECT_EQ(out.scalar_type(), type);
    EXPECT_EQ(grads[1].scalar_type(), at::kFloat);
    const at::Tensor want = x.detach().to(at::kDouble).sum({3, 4});
    EXPECT_LE(lanes::testing::distance(grads[1], want), 1e-5 * lanes::testing::largest(want));
  }
}

void expect_to_leave_out_empty_entries() {
  const at::Tensor entries = at::tensor({2, -1, 0}, at::kLong).to(lanes::testing::test_device());
  const auto type = at::kBFloat16;
  at::Tensor x = lanes::testing::stacked_copy(random_lanes({3, 2, 8, 3, 3}), type).set_requires_grad(true);
  at::Tensor y = lanes::testing::stacked_copy(random_lanes({3, 2, 8, 3, 3}), type).set_requires_grad(true);
  const at::Tensor t = lanes::testing::stacked_copy(random_lanes({3, 1}), at::kFloat).set_requires_grad(true);
  const at::Tensor scale =
      lanes::testing::stacked_copy(random_lanes({3, 2, 8}), at::kFloat).set_requires_grad(true);
  const auto run = [&] {
    const auto [a, b] = lane_fork(x);
    const at::Tensor mixed = lane_mix(a, lane_residual(b, y), t);
    return lane_curve(lane_scale(mixed, scale), Curve::kTanh);
  };
  const at::Tensor grad = lanes::testing::stacked_copy(random_lanes({3, 2, 8, 3, 3}), type);
  const at::Tensor all = run();
  const auto want = torch::autograd::grad({all}, {x, y, t, scale}, {grad});
  const lanes::ActiveLanes active(entries);
  const at::Tensor some = run();
  const auto got = torch::autograd::grad({some}, {x, y, t, scale}, {grad});
  for (const int64_t entry : {0, 2}) {
    lanes::testing::expect_same_bits(some.detach().select(0, entry), all.detach().select(0, entry), "out");
    for (size_t i = 0; i < want.size(); ++i)
      lanes::testing::expect_same_bits(got[i].select(0, entry), want[i].select(0, entry),
                                       "gradient " + std::to_string(i));
  }
}

TEST(LaneBranch, LeavesOutEmptyEntriesForwardAndBackward) {
  expect_to_leave_out_empty_entries();
}

TEST(LaneBranchCuda, LeavesOutEmptyEntriesForwardAndBackward) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const lanes::testing::OnCuda cuda;
  expect_to_leave_out_empty_entries();
}

// Infinities that cancel are an invalid operation, which the processor remembers.
TEST(LaneBranch, ComputesNothingForEmptyEntriesOnTheCpu) {
  if (espalier::testing::kIsEmulated) GTEST_SKIP() << "kernels, whose rows are all launched";
  const double infinity = std::numeric_limits<double>::infinity();
  const auto filled = [&](at::IntArrayRef sizes, double value) {
    at::Tensor made = lanes::testing::random_lanes(sizes).abs_();
    made.select(0, 1).fill_(value);
    return made.set_requires_grad(true);
  };
  const at::Tensor x = filled({3, 2, 8, 3, 3}, infinity), y = filled({3, 2, 8, 3, 3}, -infinity),
                   t = filled({3, 1}, 0), scale = filled({3, 2, 8}, 0);
  const auto is_valid = [&](const at::Tensor& entries) {
    const lanes::ActiveLanes active(entries);
    std::feclearexcept(FE_INVALID);
    const auto [a, b] = lane_fork(x);
    const at::Tensor out = lane_curve(lane_scale(lane_mix(a, lane_residual(b, y), t), scale), Curve::kTanh);
    const at::Tensor grad = lanes::testing::random_lanes(out.sizes());
    grad.select(0, 1).fill_(infinity);
    torch::autograd::grad({out}, {x, y, t, scale}, {grad});
    return std::fetestexcept(FE_INVALID) == 0;
  };
  EXPECT_FALSE(is_valid(at::tensor({2, 1, 0}, at::kLong)));
  EXPECT_TRUE(is_valid(at::tensor({2, -1, 0}, at::kLong)));
}

TEST(LaneBranch, NamesTheArgumentOfOtherSizes) {
  const at::Tensor x = random_lanes({2, 3, 4, 5, 6});
  EXPECT_ERROR(lane_residual(x, random_lanes({2, 3, 4, 5, 5})), c10::Error, "lane_residual: y");
  EXPECT_ERROR(lane_residual(x, x.to(at::kFloat)), c10::Error, "lane_residual: y", "Double", "Float");
  EXPECT_ERROR(lane_mix(x, x, random_lanes({3, 1})), c10::Error, "lane_mix: t", "[E,1]");
  EXPECT_ERROR(lane_scale(x, random_lanes({2, 3, 5})), c10::Error, "lane_scale: scale", "[E,B,C]");
}

}  // namespace
}  // namespace espalier::grow
