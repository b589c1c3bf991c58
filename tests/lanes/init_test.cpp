#include "espalier/lanes/init.h"

#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace espalier::lanes {
namespace {

at::Tensor drawn(at::IntArrayRef sizes, const InitKey& key) {
  const at::Tensor weight = zero_lanes(sizes, at::kFloat);
  init_kaiming_uniform_(weight, key);
  return weight.detach();
}

TEST(LaneInit, GivesALaneTheSameValuesAmongAnyNumberOfLanes) {
  const InitKey key{.seed = 42, .parameter = "block0.conv.weight"};
  const at::Tensor few = drawn({8, 5, 3, 3, 3}, key), many = drawn({128, 5, 3, 3, 3}, key);
  testing::expect_same_bits(few, many.slice(0, 0, 8), "8 of 128 lanes");
  testing::expect_same_bits(
      few.slice(0, 3, 4),
      drawn({1, 5, 3, 3, 3}, {.seed = 42, .parameter = "block0.conv.weight", .first_lane = 3}),
      "lane 3 alone");
}

TEST(LaneInit, DoesNotDependOnTheMemoryOrder) {
  const at::Tensor plain = at::empty({3, 5, 4, 3, 3});
  init_kaiming_uniform_(plain, {.seed = 1, .parameter = "w"});
  testing::expect_same_bits(plain, drawn({3, 5, 4, 3, 3}, {.seed = 1, .parameter = "w"}), "row-major");
}

TEST(LaneInit, DrawsOtherValuesForAnotherSeedLaneOrName) {
  const at::Tensor first = drawn({2, 64, 9}, {.seed = 1, .parameter = "a"});
  EXPECT_FALSE(at::equal(first[0], first[1]));
  EXPECT_FALSE(at::equal(first, drawn({2, 64, 9}, {.seed = 2, .parameter = "a"})));
  EXPECT_FALSE(at::equal(first, drawn({2, 64, 9}, {.seed = 1, .parameter = "b"})));
}

// Uniform over torch's own bounds: variance bound^2 / 3, every value inside.
TEST(LaneInit, HasTheDistributionOfTorchsDefault) {
  const at::Tensor weight = drawn({2, 256, 16, 3, 3}, {.seed = 3, .parameter = "w"}).to(at::kDouble);
  const double bound = 1 / std::sqrt(16.0 * 9);
  EXPECT_DOUBLE_EQ(kaiming_bound(weight), bound);
  const double largest = testing::largest(weight);
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.999 * bound);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 0.01 * bound);
  EXPECT_NEAR(weight.square().mean().item<double>() / (bound * bound / 3), 1, 0.01);
  const double theirs = testing::largest(torch::nn::Conv2d(16, 256, 3)->weight);
  EXPECT_LE(theirs, bound * 1.000001);
  EXPECT_GT(theirs, 0.99 * bound);
}

// Written down: a run must start from the same weights in every later version.
TEST(LaneInit, KeepsItsValuesForAllTime) {
  const at::Tensor values = at::empty({1, 5}, at::kDouble);
  init_uniform_(values, 1, {.seed = 42, .parameter = "w"});
  const double first = values[0][0].item<double>(), last = values[0][4].item<double>();
  EXPECT_DOUBLE_EQ(first, -0.9590654403436929);
  EXPECT_DOUBLE_EQ(last, -0.700037406058982);
}

// Drawn by a kernel there: no value may differ, whatever the shape, the layout and which lanes these are.
TEST(LaneInitCuda, GivesTheBitsOfTheCpu) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  using Sizes = std::vector<int64_t>;
  for (const Sizes& sizes : {Sizes{3, 5, 4, 3, 3}, Sizes{1, 1, 1, 1, 1}, Sizes{2, 31, 33}, Sizes{7, 1031},
                             Sizes{5}, Sizes{0, 4}, Sizes{2, 0, 4}})
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const InitKey key{.seed = 0x123456789abcdef, .parameter = "block1.conv.weight", .first_lane = 6};
      const at::Tensor here = zero_lanes(sizes, type),
                       there = zero_lanes(sizes, here.options().device(at::kCUDA));
      const at::Tensor plain = at::zeros(sizes, there.options());
      init_uniform_(here, 0.37, key);
      init_uniform_(there, 0.37, key);
      init_uniform_(plain, 0.37, key);
      testing::expect_same_bits(there.cpu(), here, "lanes");
      testing::expect_same_bits(plain.cpu(), here, "row-major");
      if (here.numel() > 0) {
        init_uniform_(there.slice(0, 0, 1), 0.37, key);
        testing::expect_same_bits(there.cpu(), here, "one lane alone");
      }
    }
}

TEST(LaneInitCuda, NeitherWaitsNorCopies) {
  ESPALIER_SKIP_WITHOUT_CUDA();
#if ESPALIER_WITH_CUDA
  const at::Tensor weight = zero_lanes({2, 5, 4, 3, 3}, at::TensorOptions(at::kCUDA));
  auto& state = c10::cuda::warning_state();
  state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  EXPECT_NO_THROW(init_kaiming_uniform_(weight, {.seed = 1, .parameter = "w"}));
  state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
#endif
}

TEST(LaneInit, NamesTheArgumentThatItRefuses) {
  EXPECT_ERROR(init_uniform_(at::zeros({2}, at::kInt), 1, {}), c10::Error, "stacked", "floats", "Int");
  EXPECT_ERROR(init_uniform_(at::zeros({2}), 1, {.first_lane = -1}), c10::Error, "first_lane", "-1");
  EXPECT_ERROR(kaiming_bound(at::zeros({2, 3})), c10::Error, "weight", "[2, 3]");
}

}  // namespace
}  // namespace espalier::lanes
