#include "espalier/train/step/learning_rate.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::train {
namespace {

TEST(RateSchedule, RisesOverTheFirstFifthOfACycleThenFallsToZero) {
  const RateSchedule cycle = RateSchedule::one_cycle(100);
  EXPECT_DOUBLE_EQ(cycle.at(0), 0.5 / 20);
  EXPECT_DOUBLE_EQ(cycle.at(19), 19.5 / 20);
  EXPECT_DOUBLE_EQ(cycle.at(20), 79.5 / 80);
  EXPECT_DOUBLE_EQ(cycle.at(99), 0.5 / 80);
}

TEST(RateSchedule, FallsAlongACosineAfterItsWarmUp) {
  const RateSchedule schedule(RateCurve::kCosine, 110, 10);
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.45);
  EXPECT_NEAR(schedule.at(59), 0.5 + 0.5 * std::cos(0.495 * M_PI), 1e-12);
  EXPECT_LT(schedule.at(109), 1e-3);
  EXPECT_GT(schedule.at(109), 0);
}

TEST(RateSchedule, StaysWhereItIsConstant) {
  const RateSchedule schedule(RateCurve::kConstant, 100, 0);
  EXPECT_EQ(schedule.at(0), 1);
  EXPECT_EQ(schedule.at(99), 1);
}

TEST(RateSchedule, FallsByTenAtHalfAndAtThreeQuarters) {
  const RateSchedule schedule(RateCurve::kStep, 40, 4);
  EXPECT_EQ(schedule.at(0), 0.125);
  for (const int64_t step : {4, 19}) EXPECT_EQ(schedule.at(step), 1);
  for (const int64_t step : {20, 29}) EXPECT_EQ(schedule.at(step), 0.1);
  for (const int64_t step : {30, 39}) EXPECT_EQ(schedule.at(step), 0.01);
}

TEST(RateSchedule, IsTheSameOnTheDeviceBitForBitAlongLines) {
  for (const int64_t steps : {1, 2, 7, 100, 9372}) {
    const RateSchedule cycle = RateSchedule::one_cycle(steps);
    const at::Tensor counter = at::zeros({1}, at::kDouble);
    for (int64_t step = 0; step < std::min<int64_t>(steps, 300); ++step, counter.add_(1))
      ASSERT_EQ(cycle.at(counter).item<double>(), cycle.at(step)) << steps << " steps, step " << step;
  }
  for (const RateCurve curve : {RateCurve::kCosine, RateCurve::kConstant, RateCurve::kStep}) {
    const RateSchedule schedule(curve, 50, 5);
    for (int64_t step = 0; step < 50; ++step)
      ASSERT_NEAR(schedule.at(at::full({1}, static_cast<double>(step), at::kDouble)).item<double>(),
                  schedule.at(step), 1e-15);
  }
}

TEST(RateSchedule, RefusesWhatCannotBeRun) {
  EXPECT_ERROR(RateSchedule::one_cycle(0), UsageError, "at least 1 step", "got 0");
  EXPECT_ERROR(RateSchedule(RateCurve::kCosine, 10, 10), UsageError, "warm-up", "below 10", "got 10");
}

}  // namespace
}  // namespace espalier::train
