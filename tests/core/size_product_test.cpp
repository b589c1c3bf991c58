#include "espalier/core/size_product.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(SizeProduct, IsTheProductWhereItFits) {
  EXPECT_EQ(checked_product({}), 1);
  EXPECT_EQ(checked_product({7}), 7);
  EXPECT_EQ(checked_product({3, 5, 7}), 105);
  EXPECT_EQ(checked_product({kMost, 1}), kMost);
  EXPECT_EQ(checked_product({int64_t{1} << 31, int64_t{1} << 31}), int64_t{1} << 62);
}

TEST(SizeProduct, IsNothingWhereItDoesNotFitOrASizeIsNegative) {
  EXPECT_EQ(checked_product({int64_t{1} << 61, 8}), std::nullopt);  // 2^64, which wraps to 0
  EXPECT_EQ(checked_product({kMost, 2}), std::nullopt);
  EXPECT_EQ(checked_product({int64_t{1} << 40, int64_t{1} << 40, 1}), std::nullopt);
  EXPECT_EQ(checked_product({-1}), std::nullopt);
  EXPECT_EQ(checked_product({-1, -1}), std::nullopt);
  EXPECT_EQ(checked_product({0, -1}), std::nullopt);
}

TEST(SizeProduct, IsZeroWithAZeroWhereverItStands) {
  EXPECT_EQ(checked_product({0, kMost, kMost}), 0);
  EXPECT_EQ(checked_product({kMost, kMost, 0}), 0);
}

TEST(SizeProduct, SaturatesForComparisons) {
  EXPECT_EQ(saturated_product({kMost, kMost}), kTooLarge);
  EXPECT_EQ(saturated_product({6, 7}), 42);
  EXPECT_EQ(saturated_sum(kTooLarge, 1), kTooLarge);
  EXPECT_EQ(saturated_sum(2, 3), 5);
}

}  // namespace
}  // namespace espalier
