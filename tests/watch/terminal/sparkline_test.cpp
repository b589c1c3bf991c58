#include "espalier/watch/terminal/sparkline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace espalier::watch {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

TEST(Sparkline, RisesFromTheLowestBlockToTheHighest) {
  const std::vector<double> values{0, 0.2, 0.3, 0.4, 0.55, 0.7, 0.8, 1};
  EXPECT_EQ(sparkline(values, 8, {0, 1}, Glyphs::kUtf8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(values, 8, {0, 1}, Glyphs::kAscii), "_.-:=+*#");
}

TEST(Sparkline, TakesMeansWhereThereAreMoreValuesThanCells) {
  EXPECT_EQ(sparkline({0, 0, 1, 1}, 2, {0, 1}, Glyphs::kAscii), "_#");
  EXPECT_EQ(sparkline({0, 0, 0, 1, 1}, 2, {0, 1}, Glyphs::kAscii), "_+");
  EXPECT_EQ(sparkline({0, 1}, 0, {0, 1}, Glyphs::kAscii), "");
  EXPECT_EQ(sparkline({}, 9, {0, 1}, Glyphs::kAscii), "");
}

TEST(Sparkline, LeavesGapsAndKeepsToItsScale) {
  EXPECT_EQ(sparkline({0, kGap, INFINITY, 1}, 9, {0, 1}, Glyphs::kAscii), "_  #");
  EXPECT_EQ(sparkline({0, kGap}, 1, {0, 1}, Glyphs::kAscii), "_");
  EXPECT_EQ(sparkline({-5, 5}, 9, {0, 1}, Glyphs::kAscii), "_#");
  EXPECT_EQ(sparkline({3, 3}, 9, {3, 3}, Glyphs::kAscii), "==");  // flat
}

TEST(Sparkline, WidensAScaleByFiniteValues) {
  EXPECT_GT(widened(kNoScale, {kGap}).low, widened(kNoScale, {kGap}).high);
  const Scale scale = widened(widened(kNoScale, {2, kGap}), {-1, INFINITY});
  EXPECT_EQ(scale.low, -1);
  EXPECT_EQ(scale.high, 2);
}

TEST(History, KeepsTheShapeOfMoreValuesThanItHolds) {
  History history;
  for (int i = 0; i < 100'000; ++i) history.add(i);
  EXPECT_LT(history.values().size(), History::kMost);
  EXPECT_GE(history.values().size(), History::kMost / 2);
  EXPECT_TRUE(std::ranges::is_sorted(history.values()));
  EXPECT_NEAR(history.values().front(), 255.5, 1);  // the mean of the first 512
}

TEST(History, MeansOverFiniteValuesAlone) {
  History history;
  for (size_t i = 0; i < History::kMost; ++i) history.add(i % 2 == 0 ? 7 : kGap);
  EXPECT_EQ(history.values().front(), 7);
  history.clear();
  history.add(kGap);
  ASSERT_EQ(history.values().size(), 1u);
  EXPECT_TRUE(std::isnan(history.values().front()));
}

}  // namespace
}  // namespace espalier::watch
