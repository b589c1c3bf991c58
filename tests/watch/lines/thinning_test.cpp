#include "espalier/watch/lines/thinning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace espalier::watch {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Thinning, LeavesAShortSeriesAsItIs) {
  const std::vector<int64_t> x{1, 2, 5};
  const std::vector<double> y{3, 1, 2};
  const Thinning thinning(3, 4);
  EXPECT_FALSE(thinning.is_thinned());
  EXPECT_EQ(thinning.places(x), x);
  EXPECT_EQ(thinning.values(y), y);
}

TEST(Thinning, KeepsTheExtremesOfEveryBucketInTheirOrder) {
  std::vector<int64_t> x(8);
  std::iota(x.begin(), x.end(), 1);
  const std::vector<double> y{0, 9, -9, 1, 5, 4, 3, 2};
  const Thinning thinning(8, 4);
  EXPECT_TRUE(thinning.is_thinned());
  EXPECT_EQ(thinning.places(x), (std::vector<int64_t>{1, 4, 5, 8}));
  EXPECT_EQ(thinning.values(y), (std::vector<double>{9, -9, 5, 2}));
}

TEST(Thinning, KeepsOnePeakAmongAMillionAndStaysWithinItsLimit) {
  std::vector<double> y(1000003, 0.0);
  y[777777] = 1;
  const std::vector<double> kept = Thinning(y.size(), 400).values(y);
  EXPECT_EQ(kept.size(), 400u);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 1.0), 1);
}

TEST(Thinning, PassesOverWhatIsMissing) {
  const std::vector<double> kept =
      Thinning(6, 4).values(std::vector<double>{kNaN, 4, kNaN, kNaN, kNaN, kNaN});
  ASSERT_EQ(kept.size(), 4u);
  EXPECT_EQ(kept[0], 4);
  EXPECT_EQ(kept[1], 4);
  EXPECT_TRUE(std::isnan(kept[2]) && std::isnan(kept[3]));
}

}  // namespace
}  // namespace espalier::watch
