#include "espalier/train/learning_rate.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::train {
namespace {

TEST(OneCycle, RisesOverTheFirstFifthThenFallsToZero) {
  const OneCycle cycle(100);
  EXPECT_DOUBLE_EQ(cycle.at(0), 0.5 / 20);
  EXPECT_DOUBLE_EQ(cycle.at(19), 19.5 / 20);
  EXPECT_DOUBLE_EQ(cycle.at(20), 79.5 / 80);
  EXPECT_DOUBLE_EQ(cycle.at(99), 0.5 / 80);
}

TEST(OneCycle, IsTheSameOnTheDeviceBitForBit) {
  for (const int64_t steps : {1, 2, 7, 100, 9372}) {
    const OneCycle cycle(steps);
    const at::Tensor counter = at::zeros({1}, at::kDouble);
    for (int64_t step = 0; step < std::min<int64_t>(steps, 300); ++step, counter.add_(1))
      ASSERT_EQ(cycle.at(counter).item<double>(), cycle.at(step)) << steps << " steps, step " << step;
  }
}

TEST(OneCycle, RefusesARunWithoutSteps) {
  EXPECT_ERROR(OneCycle(0), UsageError, "at least 1 step", "got 0");
}

}  // namespace
}  // namespace espalier::train
