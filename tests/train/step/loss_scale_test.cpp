#include "espalier/train/step/loss_scale.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/lanes/optim/gradients.h"

namespace espalier::train {
namespace {

at::Tensor lanes(std::initializer_list<bool> finite) {
  std::vector<int64_t> values(finite.begin(), finite.end());
  return at::tensor(values, at::kLong).to(at::kBool);
}

std::vector<float> values(const LossScale& scale) {
  const float* first = scale.scales().const_data_ptr<float>();
  return {first, first + scale.scales().numel()};
}

TEST(LossScale, HalvesWhereGradientsOverflowAndLeavesTheOthers) {
  LossScale scale(3, at::kCPU);
  scale.update(lanes({true, false, true}));
  scale.update(lanes({true, false, true}));
  EXPECT_EQ(values(scale), (std::vector<float>{65536, 16384, 65536}));
}

TEST(LossScale, NeverFallsBelowOne) {
  LossScale scale(1, at::kCPU);
  for (int i = 0; i < 40; ++i) scale.update(lanes({false}));
  EXPECT_EQ(values(scale), (std::vector<float>{1}));
  EXPECT_TRUE(scale.is_smallest().item<bool>());
}

TEST(LossScale, DoublesAfterTwoThousandGoodStepsInARow) {
  LossScale scale(2, at::kCPU);
  for (int64_t step = 0; step < LossScale::kGrowthSteps - 1; ++step) scale.update(lanes({true, step != 5}));
  EXPECT_EQ(values(scale), (std::vector<float>{65536, 32768}));
  scale.update(lanes({true, true}));
  EXPECT_EQ(values(scale), (std::vector<float>{131072, 32768}));
  for (int64_t step = 0; step < 6; ++step) scale.update(lanes({true, true}));
  EXPECT_EQ(values(scale), (std::vector<float>{131072, 65536}));
}

TEST(LossScale, DividesGradientsOfEachEntryByItsOwn) {
  LossScale scale(2, at::kCPU);
  scale.update(lanes({true, false}));
  lanes::LaneParameter parameter({2, 3}, at::kFloat, at::kFloat);
  parameter.gradient().fill_(65536);
  lanes::scale_lane_gradients_({&parameter}, scale.inverse());
  EXPECT_TRUE(at::equal(parameter.gradient(), at::tensor({1.f, 2.f}).unsqueeze(1).expand({2, 3})));
}

}  // namespace
}  // namespace espalier::train
