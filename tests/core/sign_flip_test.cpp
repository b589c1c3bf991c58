#include "espalier/core/sign_flip.h"

#include <gtest/gtest.h>

#include <cmath>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier {
namespace {

TEST(SignFlip, CountsAssignmentsByHand) {
  // Sums of +-1 +-2 +-3: 6, 4, 2, 0, 0, -2, -4, -6.
  EXPECT_DOUBLE_EQ(sign_flip_p({1, 2, 3}), 2.0 / 8);
  EXPECT_DOUBLE_EQ(sign_flip_p({-1, 2, 3}), 4.0 / 8);
  EXPECT_DOUBLE_EQ(sign_flip_p({1, 2, -3}), 1);
  EXPECT_DOUBLE_EQ(sign_flip_p({-1, -2, -3}), 2.0 / 8);
  EXPECT_DOUBLE_EQ(sign_flip_p({5}), 1);
  EXPECT_DOUBLE_EQ(sign_flip_p({}), 1);
  EXPECT_DOUBLE_EQ(sign_flip_p({0, 0, 0}), 1);
  EXPECT_DOUBLE_EQ(sign_flip_p({0.03, 0.04, 0.02, 0.05, 0.01, 0.03, 0.02, 0.04}), 2.0 / 256);
}

// What is equal up to rounding counts as equal: 0.1 + 0.2 is not 0.3.
TEST(SignFlip, TakesSumsThatDifferInTheirLastBitsAsEqual) {
  EXPECT_DOUBLE_EQ(sign_flip_p({1, 2, 3, -3}), 12.0 / 16);
  EXPECT_DOUBLE_EQ(sign_flip_p({0.1, 0.2, 0.3, -0.3}), 12.0 / 16);
  EXPECT_DOUBLE_EQ(sign_flip_p({1, 1, 1, -2, 7}), 16.0 / 32);
  EXPECT_DOUBLE_EQ(sign_flip_p({0.1, 0.1, 0.1, -0.2, 0.7}), 16.0 / 32);
}

TEST(SignFlip, OfManyDifferencesIsCloseToTheNormalOne) {
  // 400 ones, a share of them turned: the mean of flipped signs is normal with deviation 1 / 20.
  std::vector<double> differences(400, 1);
  for (size_t i = 0; i < 180; ++i) differences[i] = -1;  // the mean is 0.1, two deviations from 0
  const double p = sign_flip_p(differences);
  EXPECT_NEAR(p, std::erfc((40 - 1) / 20.0 / std::sqrt(2.0)), 0.005);  // sums are even: half a step back
  EXPECT_EQ(sign_flip_p(differences), p) << "the same numbers, the same p";
  EXPECT_DOUBLE_EQ(sign_flip_p(std::vector<double>(400, 1)), 1.0 / (kDrawnSigns + 1));
}

TEST(SignFlip, DrawsCloseToWhatAllAssignmentsSay) {
  std::vector<double> differences;
  for (size_t i = 0; i < kMostExactSigns; ++i) differences.push_back(0.6 + (i % 2 == 0 ? 1.0 : -1.0));
  const double exact = sign_flip_p(differences);
  differences.push_back(0);  // changes no mean's sign, and is one too many to look at all
  EXPECT_GT(exact, 0.01);
  EXPECT_NEAR(sign_flip_p(differences), exact, 0.005);
}

TEST(SignFlip, TakesTheMeansOfGroupsForTheirNetworks) {
  EXPECT_DOUBLE_EQ(sign_flip_p_over_groups({0, 2, 1, 3, 2, 4}, 2), 2.0 / 8);  // means 1, 2, 3
  EXPECT_DOUBLE_EQ(sign_flip_p_over_groups({1, 2, 3}, 3), 2.0 / 8);           // a single group: its values
  EXPECT_ERROR(sign_flip_p_over_groups({1, 2, 3}, 2), Error, "3 values");
}

TEST(SignFlip, IsWrittenWithThreeDigits) {
  EXPECT_EQ(p_text(2.0 / 256), "0.008");
  EXPECT_EQ(p_text(1), "1.000");
  EXPECT_EQ(p_text(1.0 / 65537), "< 0.001");
}

}  // namespace
}  // namespace espalier
