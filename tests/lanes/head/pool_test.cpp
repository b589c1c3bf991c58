#include "espalier/lanes/head/pool.h"

#include <fmt/format.h>

#include <limits>

#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

using testing::Dice;
using testing::Layer;
using testing::random_lanes;
using testing::Tensors;

void expect_max_pool_contracts() {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    testing::expect_contracts(
        {.stacked = [](const Tensors& in) { return lane_max_pool2x2(in[0]); },
         .torch = [](const Tensors& in) { return at::max_pool2d(in[0], {2, 2}); },
         .inputs = {random_lanes({dice.roll(1, 5), dice.roll(1, 7),
                                  dice.roll(0, 1) ? dice.roll(1, 9) : 8 * dice.roll(1, 5), dice.roll(2, 9),
                                  dice.roll(2, 9)})}});
  }
}

TEST(LaneMaxPool, EqualsTorchLaneByLaneOverRandomShapes) {
  expect_max_pool_contracts();
}

TEST(LaneMaxPoolCuda, EqualsTorchLaneByLaneOverRandomShapes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_max_pool_contracts();
}

TEST(LaneMaxPoolCuda, FindsTiesAndNaNsWhereTorchDoes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const at::Tensor values = at::tensor({-1.0f, -0.0f, 0.0f, 0.0f, 1.0f, 1.0f, nan, inf, -inf});
  for (const auto type : {at::kBFloat16, at::kHalf, at::kFloat})
    for (const int64_t channels : {3, 8, 40}) {
      SCOPED_TRACE(fmt::format("{} {}", c10::toString(type), channels));
      at::manual_seed(static_cast<uint64_t>(channels));
      const at::Tensor plain =
          values.index({at::randint(values.size(0), {2, 3, channels, 7, 8}, at::kLong)}).requires_grad_();
      const at::Tensor grad = at::randint(1, 200, {2, 3, channels, 3, 4}).to(at::kFloat);
      const at::Tensor expected = at::max_pool2d(plain.flatten(0, 1), {2, 2}).view(grad.sizes());
      const at::Tensor expected_grad = torch::autograd::grad({expected}, {plain}, {grad})[0];
      const auto placed = [&](const at::Tensor& tensor) {
        return testing::stacked_copy(tensor.detach(), type).to(testing::test_device());
      };
      const at::Tensor x = placed(plain).requires_grad_();
      const at::Tensor out = lane_max_pool2x2(x);
      const at::Tensor grad_x = torch::autograd::grad({out}, {x}, {placed(grad)})[0];
      EXPECT_TRUE(at::allclose(out.cpu().to(at::kFloat), expected, 0, 0, /*equal_nan=*/true));
      EXPECT_TRUE(at::equal(grad_x.cpu().to(at::kFloat), expected_grad));
    }
}

void expect_max_pool3x3_contracts() {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    testing::expect_contracts(
        {.stacked = [](const Tensors& in) { return lane_max_pool3x3(in[0]); },
         .torch = [](const Tensors& in) { return at::max_pool2d(in[0], {3, 3}, {2, 2}, {1, 1}); },
         .inputs = {random_lanes({dice.roll(1, 4), dice.roll(1, 5),
                                  dice.roll(0, 1) ? dice.roll(1, 9) : 8 * dice.roll(1, 5), dice.roll(1, 12),
                                  dice.roll(1, 12)})}});
  }
}

TEST(LaneMaxPool3x3, EqualsTorchLaneByLaneOverRandomShapes) {
  expect_max_pool3x3_contracts();
}

TEST(LaneMaxPool, RefusesImagesOfOneRow) {
  EXPECT_ERROR(lane_max_pool2x2(random_lanes({2, 3, 4, 1, 5})), c10::Error, "x", "2 x 2", "[2, 3, 4, 1, 5]");
}

void expect_average_pool_contracts() {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    testing::expect_contracts(
        {.stacked = [](const Tensors& in) { return lane_global_average_pool(in[0]); },
         .torch = [](const Tensors& in) { return at::adaptive_avg_pool2d(in[0], {1, 1}).flatten(1); },
         .inputs = {random_lanes({dice.roll(1, 5), dice.roll(1, 7),
                                  dice.roll(0, 1) ? dice.roll(1, 9) : 8 * dice.roll(1, 5), dice.roll(1, 9),
                                  dice.roll(1, 9)})}});
  }
}

TEST(LaneGlobalAveragePool, EqualsTorchLaneByLaneOverRandomShapes) {
  expect_average_pool_contracts();
}

TEST(LaneGlobalAveragePoolCuda, EqualsTorchLaneByLaneOverRandomShapes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_average_pool_contracts();
}

TEST(LaneGlobalAveragePool, RefusesAnotherLayout) {
  EXPECT_ERROR(lane_global_average_pool(at::randn({2, 3, 4, 5, 6}).transpose(3, 4)), c10::Error, "x",
               "channels-last");
}

}  // namespace
}  // namespace espalier::lanes
