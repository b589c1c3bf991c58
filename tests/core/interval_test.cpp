#include "espalier/core/interval.h"

#include <gtest/gtest.h>

#include <cmath>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier {
namespace {

TEST(Interval, HasTheQuantilesOfStudentsTables) {
  EXPECT_NEAR(student_t(1), 12.706, 1e-3);
  EXPECT_NEAR(student_t(2), 4.303, 1e-3);
  EXPECT_NEAR(student_t(3), 3.182, 0.03);
  EXPECT_NEAR(student_t(5), 2.571, 0.01);
  EXPECT_NEAR(student_t(30), 2.042, 1e-3);
  EXPECT_NEAR(student_t(1e6), 1.960, 1e-3);
}

TEST(Interval, IsThatOfAFewNumbersByHand) {
  // Mean 2, deviation 1, over sqrt(3), times t of two degrees.
  const Interval interval = interval_of({1, 2, 3});
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_NEAR(interval.half_width, 4.3027 / 1.7320508, 1e-4);
  EXPECT_EQ(interval_of({5}).half_width, 0);
  EXPECT_EQ(interval_of({}).mean, 0);
}

TEST(Interval, OfTwoGroupsIsWelchs) {
  // Variances of the means 1/3 and 4/3; degrees (5/3)^2 / (1/18 + 16/18) = 50/17.
  const Interval interval = difference_of_means({5, 6, 7}, {0, 2, 4});
  EXPECT_DOUBLE_EQ(interval.mean, 4);
  EXPECT_NEAR(interval.half_width, student_t(50.0 / 17) * std::sqrt(5.0 / 3), 1e-9);
  EXPECT_EQ(difference_of_means({5, 6}, {1}).half_width, 0);
  EXPECT_EQ(difference_of_means({5, 5}, {1, 1}).half_width, 0);
}

// Twenty networks that all did alike in an episode are one observation, not twenty.
TEST(Interval, CountsAGroupOnce) {
  const Interval grouped = interval_over_groups({1, 1, 2, 2, 3, 3}, 2);
  EXPECT_DOUBLE_EQ(grouped.mean, 2);
  EXPECT_NEAR(grouped.half_width, 4.3027 / 1.7320508, 1e-4);
  const Interval spread = interval_over_groups({0, 2, 1, 3, 2, 4}, 2);
  EXPECT_DOUBLE_EQ(spread.half_width, grouped.half_width) << "what is within a group does not matter";
  EXPECT_DOUBLE_EQ(interval_over_groups({1, 2, 3}, 3).half_width, interval_of({1, 2, 3}).half_width);
  EXPECT_EQ(interval_over_groups({}, 2).mean, 0);
  EXPECT_ERROR(interval_over_groups({1, 2, 3}, 2), Error, "3 values", "groups of 2");
}

}  // namespace
}  // namespace espalier
