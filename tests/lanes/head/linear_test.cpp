#include "espalier/lanes/head/linear.h"

#include "espalier/lanes/head/pool.h"
#include "espalier/lanes/optim/gradients.h"
#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

using testing::Dice;
using testing::Layer;
using testing::random_lanes;
using testing::Tensors;

Layer linear_layer(int64_t lanes, int64_t batch, int64_t in, int64_t out, bool has_bias) {
  return {.stacked = [](const Tensors& t) { return lane_linear(t[0], t[1], t[2]); },
          .torch =
              [](const Tensors& t) {
                return at::linear(t[0], t[1], t[2].defined() ? std::optional(t[2]) : std::nullopt);
              },
          .inputs = {random_lanes({lanes, batch, in}), random_lanes({lanes, out, in}),
                     has_bias ? random_lanes({lanes, out}) : at::Tensor()}};
}

void expect_linear_contracts() {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    testing::expect_contracts(linear_layer(dice.roll(1, 5), dice.roll(1, 40), dice.roll(1, 40),
                                           dice.roll(1, 12), dice.roll(0, 1) == 1));
  }
}

TEST(LaneLinear, EqualsTorchLaneByLaneOverRandomShapes) {
  expect_linear_contracts();
}

TEST(LaneLinearCuda, EqualsTorchLaneByLaneOverRandomShapes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_linear_contracts();
  testing::expect_contracts(linear_layer(3, 512, 128, 10, true));
}

void expect_narrow_meets_wide() {
  torch::manual_seed(2);
  const at::Tensor x =
      testing::stacked_copy(random_lanes({3, 33, 40}), at::kBFloat16).set_requires_grad(true);
  const at::Tensor weight =
      testing::stacked_copy(random_lanes({3, 7, 40}), at::kFloat).set_requires_grad(true);
  const at::Tensor bias = testing::stacked_copy(random_lanes({3, 7}), at::kFloat).set_requires_grad(true);
  const at::Tensor grad = testing::stacked_copy(random_lanes({3, 33, 7}), at::kFloat);
  const at::Tensor out = lane_linear(x, weight, bias);
  EXPECT_EQ(out.scalar_type(), at::kFloat);
  const at::Tensor want = at::baddbmm(bias.unsqueeze(1), x.to(at::kFloat), weight.transpose(1, 2));
  EXPECT_LE(testing::distance(out, want), 1e-5 * testing::largest(want));
  const auto ours = torch::autograd::grad({out}, {x, weight, bias}, {grad});
  const auto theirs = torch::autograd::grad({want}, {x, weight, bias}, {grad});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_LE(testing::distance(ours[i], theirs[i]), (i == 0 ? 0x1p-7 : 1e-5) * testing::largest(theirs[i]));
}

TEST(LaneLinear, TakesNarrowValuesWithMasters) {
  expect_narrow_meets_wide();
}

TEST(LaneLinearCuda, TakesNarrowValuesWithMasters) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_narrow_meets_wide();
}

TEST(LaneLinear, GivesALaneTheBitsItHasAloneAtTheSizesOfAHost) {
  testing::expect_same_alone(linear_layer(5, 512, 128, 10, true));
}

Layer pooled_layer(int64_t lanes, int64_t batch, int64_t channels, int64_t size, int64_t out, bool has_bias) {
  return {
      .stacked = [](const Tensors& t) { return lane_pooled_linear(t[0], t[1], t[2]); },
      .torch =
          [](const Tensors& t) {
            return at::linear(at::adaptive_avg_pool2d(t[0], {1, 1}).flatten(1), t[1],
                              t[2].defined() ? std::optional(t[2]) : std::nullopt);
          },
      .inputs = {random_lanes({lanes, batch, channels, size, size + size / 3}),
                 random_lanes({lanes, out, channels}), has_bias ? random_lanes({lanes, out}) : at::Tensor()}};
}

void expect_pooled_contracts() {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    testing::expect_contracts(pooled_layer(dice.roll(1, 5), dice.roll(1, 20),
                                           dice.roll(0, 1) ? dice.roll(1, 70) : 8 * dice.roll(1, 36),
                                           dice.roll(1, 6), dice.roll(1, 12), dice.roll(0, 1) == 1));
  }
}

TEST(LanePooledLinear, EqualsTorchLaneByLaneOverRandomShapes) {
  expect_pooled_contracts();
}

TEST(LanePooledLinearCuda, EqualsTorchLaneByLaneOverRandomShapes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_pooled_contracts();
  testing::expect_contracts(pooled_layer(3, 512, 128, 4, 10, true));
}

// Masters that are wider than the images, and channels beyond those that a kernel keeps.
void expect_pooled_equals_its_parts() {
  torch::manual_seed(6);
  for (const int64_t channels : {1, 40, 512, 520})
    for (const auto type : {at::kBFloat16, at::kFloat, at::kDouble}) {
      const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
      const at::Tensor x =
          testing::stacked_copy(random_lanes({3, 9, channels, 3, 2}), type).set_requires_grad(true);
      const at::Tensor weight =
          testing::stacked_copy(random_lanes({3, 7, channels}), wide).set_requires_grad(true);
      const at::Tensor bias = testing::stacked_copy(random_lanes({3, 7}), wide).set_requires_grad(true);
      const at::Tensor grad = testing::stacked_copy(random_lanes({3, 9, 7}), wide);
      const at::Tensor out = lane_pooled_linear(x, weight, bias);
      const at::Tensor want = lane_linear(lane_global_average_pool(x), weight, bias);
      ASSERT_EQ(out.scalar_type(), wide);
      const auto ours = torch::autograd::grad({out}, {x, weight, bias}, {grad});
      const auto theirs = torch::autograd::grad({want}, {x, weight, bias}, {grad});
      // A mean that is rounded another way is a unit of its type away.
      const double unit = type == at::kBFloat16 ? 0x1p-7 : 1e-5;
      EXPECT_LE(testing::distance(out, want), unit * testing::largest(want)) << channels << " " << type;
      for (size_t i = 0; i < 3; ++i)
        EXPECT_LE(testing::distance(ours[i], theirs[i]), unit * testing::largest(theirs[i]))
            << channels << " " << type << ", gradient " << i;
    }
}

TEST(LanePooledLinear, EqualsItsParts) {
  expect_pooled_equals_its_parts();
}

TEST(LanePooledLinearCuda, EqualsItsParts) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_pooled_equals_its_parts();
}

TEST(LanePooledLinear, GivesALaneTheBitsItHasAloneAtTheSizesOfAHost) {
  testing::expect_same_alone(pooled_layer(5, 512, 128, 4, 10, true));
}

TEST(LanePooledLinear, TakesNoLanesAndNoSamples) {
  for (const auto& [lanes, batch] : {std::pair<int64_t, int64_t>{0, 3}, {2, 0}}) {
    const at::Tensor x = random_lanes({lanes, batch, 4, 2, 2}).set_requires_grad(true),
                     weight = random_lanes({lanes, 5, 4}).set_requires_grad(true);
    const at::Tensor out = lane_pooled_linear(x, weight, random_lanes({lanes, 5}));
    EXPECT_EQ(out.sizes(), (std::vector<int64_t>{lanes, batch, 5}));
    const auto grads = torch::autograd::grad({out}, {x, weight}, {at::ones_like(out)});
    EXPECT_TRUE(at::equal(grads[1], at::zeros_like(grads[1])));
  }
}

TEST(LanePooledLinear, NamesTheArgumentThatItRefuses) {
  const at::Tensor x = random_lanes({2, 3, 4, 2, 2}), weight = random_lanes({2, 5, 4});
  EXPECT_ERROR(lane_pooled_linear(x[0], weight, {}), c10::Error, "lane_pooled_linear", "x", "[3, 4, 2, 2]");
  EXPECT_ERROR(lane_pooled_linear(x, random_lanes({2, 5, 3}), {}), c10::Error, "lane_pooled_linear", "weight",
               "[2,O,4]");
  EXPECT_ERROR(lane_pooled_linear(x, weight, random_lanes({2, 4})), c10::Error, "bias", "[2, 5]", "[2, 4]");
  EXPECT_ERROR(lane_pooled_linear(x.to(at::kLong), weight, {}), c10::Error, "lane_pooled_linear", "x",
               "floats", "Long");
}

TEST(LaneLinear, GivesItsParametersGradientsInTheirLayout) {
  LaneLinear linear({.lanes = 2, .in_features = 3, .out_features = 4}, at::kFloat);
  const void* before = linear.weight.gradient().data_ptr();
  lane_backward(linear.forward(at::ones({2, 5, 3})).sum({1, 2}), without_names(linear.parameters()));
  EXPECT_EQ(linear.weight.gradient().data_ptr(), before);
  EXPECT_TRUE(at::equal(linear.weight.gradient(), at::full({2, 4, 3}, 5.0)));
  EXPECT_TRUE(at::equal(linear.bias.gradient(), at::full({2, 4}, 5.0)));
}

TEST(LaneLinear, NamesTheArgumentThatItRefuses) {
  const at::Tensor x = random_lanes({2, 3, 4}), weight = random_lanes({2, 5, 4});
  EXPECT_ERROR(lane_linear(x[0], weight, {}), c10::Error, "x", "[L,B,I]", "[3, 4]");
  EXPECT_ERROR(lane_linear(x, random_lanes({2, 5, 3}), {}), c10::Error, "weight", "[2,O,4]");
  EXPECT_ERROR(lane_linear(x, weight, random_lanes({2, 4})), c10::Error, "bias", "[2, 5]", "[2, 4]");
  EXPECT_ERROR(lane_linear(x, weight.to(at::kLong), {}), c10::Error, "weight", "floats", "Long");
}

}  // namespace
}  // namespace espalier::lanes
