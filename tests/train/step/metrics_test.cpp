#include "espalier/train/step/metrics.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace espalier::train {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(StepMetrics, TakesMeansOverTheSamplesAndTheSteps) {
  StepMetrics metrics(2, 1, at::kCPU);
  metrics.add_scores(at::tensor({1.f, 2.f}), at::tensor({3, 0}, at::kLong), at::tensor({4, 4}, at::kLong));
  metrics.add_scores(at::tensor({4.f, 2.f}), at::tensor({0, 2}, at::kLong), at::tensor({2, 4}, at::kLong));
  metrics.add_host_norms(at::tensor({1.0, 5.0}));
  metrics.add_host_norms(at::tensor({3.0, 1.0}));
  const auto lanes = metrics.read(2);
  EXPECT_DOUBLE_EQ(lanes[0].loss, (4 * 1 + 2 * 4) / 6.0);
  EXPECT_DOUBLE_EQ(lanes[0].accuracy, 3 / 6.0);
  EXPECT_DOUBLE_EQ(lanes[1].accuracy, 2 / 8.0);
  EXPECT_DOUBLE_EQ(lanes[0].gradient_norm, 2);
  EXPECT_DOUBLE_EQ(lanes[0].largest_norm, 3);
  EXPECT_DOUBLE_EQ(lanes[1].largest_norm, 5);
}

TEST(StepMetrics, FindsTheLaneOfEveryEntryAndReadsNoEmptyOne) {
  StepMetrics metrics(4, 2, at::kCPU);
  metrics.add_seed_norms({{},
                          {{at::tensor({3, -1, 0, -1}, at::kLong), at::tensor({0.5, double(kNaN), 2.0, 7.0})},
                           {at::tensor({-1, 2}, at::kLong), at::tensor({double(kNaN), 4.0})}}});
  const auto lanes = metrics.read(1);
  EXPECT_EQ(lanes[0].slots, (std::vector<double>{0, 2}));
  EXPECT_EQ(lanes[1].slots, (std::vector<double>{0, 0}));
  EXPECT_EQ(lanes[2].slots, (std::vector<double>{0, 4}));
  EXPECT_EQ(lanes[3].slots, (std::vector<double>{0, 0.5}));
}

TEST(StepMetrics, KeepsWhatIsNotFiniteInItsLane) {
  StepMetrics metrics(2, 0, at::kCPU);
  for (const float loss : {kNaN, 1.f})
    metrics.add_scores(at::tensor({loss, 1.f}), at::ones({2}, at::kLong), at::ones({2}, at::kLong));
  metrics.add_host_norms(at::tensor({double(kNaN), 1.0}));
  metrics.add_host_norms(at::tensor({2.0, 1.0}));
  metrics.add_non_finite(at::tensor({1, 0}, at::kLong).to(at::kBool));
  const auto lanes = metrics.read(2);
  EXPECT_TRUE(std::isnan(lanes[0].loss));
  EXPECT_TRUE(std::isnan(lanes[0].largest_norm));
  EXPECT_EQ(lanes[0].non_finite, 1);
  EXPECT_EQ(lanes[1].loss, 1);
  EXPECT_EQ(lanes[1].non_finite, 0);
  metrics.clear();
  EXPECT_EQ(metrics.read(1)[0].loss, 0);
}

}  // namespace
}  // namespace espalier::train
