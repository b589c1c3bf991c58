#include "bench/scaling/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/scaling/plot.h"
#include "espalier/core/error.h"

namespace espalier::bench {
namespace {

std::vector<Point> measured(const std::vector<double>& times_us) {
  std::vector<Point> points;
  for (size_t i = 0; i < times_us.size(); ++i)
    points.push_back({std::exp2(static_cast<double>(i)), times_us[i]});
  return points;
}

TEST(ScalingFit, FindsFloorSlopeAndKneeOfTheModelItself) {
  std::vector<Point> points;
  for (double lanes = 1; lanes <= 512; lanes *= 2)
    points.push_back({lanes, std::max(300.0, 100 + 10 * lanes)});
  const ScalingFit fit = fit_scaling(points);
  EXPECT_NEAR(fit.floor_us, 300, 1e-6);
  EXPECT_NEAR(fit.start_us, 100, 1e-6);
  EXPECT_NEAR(fit.slope_us, 10, 1e-6);
  EXPECT_NEAR(fit.knee, 20, 1e-6);
  EXPECT_NEAR(fit.largest_error, 0, 1e-9);
  EXPECT_NEAR(fit.at(2), 300, 1e-6);
  EXPECT_NEAR(fit.at(1024), 10340, 1e-5);
}

TEST(ScalingFit, TakesALineForALine) {
  const ScalingFit fit = fit_scaling(measured({12, 14, 18, 26, 42}));  // 10 + 2 size
  EXPECT_EQ(fit.floor_us, 0);
  EXPECT_NEAR(fit.start_us, 10, 1e-9);
  EXPECT_NEAR(fit.slope_us, 2, 1e-9);
  EXPECT_EQ(fit.knee, 1);
}

TEST(ScalingFit, SaysHowFarItIsOffWhereTimesFollowNoModel) {
  const ScalingFit exact = fit_scaling(measured({100, 200, 400, 800, 1600}));
  const ScalingFit rough = fit_scaling(measured({100, 240, 340, 1000, 1400}));
  EXPECT_LT(exact.slope_error_us, 1e-9);
  EXPECT_GT(rough.slope_error_us, 1);
  EXPECT_GT(rough.largest_error, 0.1);
  EXPECT_GE(rough.largest_error, rough.mean_error);
  // Relative: the smallest size counts as much as the largest.
  EXPECT_LT(std::abs(rough.at(1) / 100 - 1), 0.3);
}

TEST(ScalingFit, NeverHasAStepGetFasterAsItGrows) {
  EXPECT_GE(fit_scaling(measured({100, 99, 98, 97})).slope_us, 0);
}

TEST(ScalingFit, RefusesWhatIsNoCurve) {
  EXPECT_THROW(fit_scaling({{1, 5}}), Error);
  EXPECT_THROW(fit_scaling({{2, 5}, {1, 6}}), Error);
  EXPECT_THROW(fit_scaling({{1, 5}, {2, 0}}), Error);
}

TEST(ScalingPlot, DrawsEveryPointAndEscapesWhatItIsTold) {
  ScalingCurve curve{
      .axis = "lanes", .shapes = "batch < 64 & base 8", .points = measured({300, 300, 320, 420})};
  curve.fit = fit_scaling(curve.points);
  const std::string svg = scaling_svg({curve, curve, curve}, {"a card", "a <command>"});
  const auto count = [&](const std::string& text) {
    size_t found = 0;
    for (size_t at = svg.find(text); at != svg.npos; at = svg.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<circle"), 12u);
  EXPECT_EQ(count("class=\"fit\""), 3u);
  EXPECT_EQ(count("batch &lt; 64 &amp; base 8"), 3u);
  EXPECT_EQ(count("a &lt;command&gt;"), 1u);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), svg.npos);
  EXPECT_EQ(svg.find("nan"), svg.npos);
  EXPECT_EQ(svg.find("inf"), svg.npos);
}

}  // namespace
}  // namespace espalier::bench
