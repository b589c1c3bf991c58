#include "espalier/grow/blend/amplitude.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

namespace espalier::grow {
namespace {

const std::vector<BlendCurve> kCurves{BlendCurve::kLinear, BlendCurve::kCosine, BlendCurve::kSigmoid6,
                                      BlendCurve::kSigmoid12, BlendCurve::kSigmoid24};

// The textbook forms, at t in [0, 1].
double textbook(BlendCurve curve, double t) {
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto sigmoid = [&](double steepness) {
    const double low = logistic(-steepness / 2), high = logistic(steepness / 2);
    return (logistic(steepness * (t - 0.5)) - low) / (high - low);
  };
  switch (curve) {
    case BlendCurve::kLinear:
      return t;
    case BlendCurve::kCosine:
      return (1 - std::cos(std::numbers::pi * t)) / 2;
    case BlendCurve::kSigmoid6:
      return sigmoid(6);
    case BlendCurve::kSigmoid12:
      return sigmoid(12);
    case BlendCurve::kSigmoid24:
      return sigmoid(24);
  }
  return -1;
}

double fraction_of(BlendCurve curve, int64_t done, int64_t steps) {
  return curve_fraction(curve, static_cast<double>(done), static_cast<double>(steps));
}

TEST(Blend, FollowsTheTextbookCurves) {
  for (const BlendCurve curve : kCurves)
    for (int64_t n = 1; n <= 200; ++n)
      for (int64_t k = 0; k <= n; ++k)
        ASSERT_NEAR(fraction_of(curve, k, n),
                    textbook(curve, static_cast<double>(k) / static_cast<double>(n)),
                    8 * std::numeric_limits<double>::epsilon())
            << name_of(curve) << " " << k << " of " << n;
}

TEST(Blend, HitsZeroAndOneExactlyAtTheEndsAndBeyond) {
  const int64_t huge = std::numeric_limits<int32_t>::max();
  for (const BlendCurve curve : kCurves) {
    for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{1000}, huge}) {
      EXPECT_EQ(fraction_of(curve, 0, n), 0.0) << name_of(curve);
      EXPECT_EQ(fraction_of(curve, -1, n), 0.0) << name_of(curve);
      EXPECT_EQ(fraction_of(curve, n, n), 1.0) << name_of(curve);
      EXPECT_EQ(fraction_of(curve, n + 1, n), 1.0) << name_of(curve);
    }
    EXPECT_EQ(fraction_of(curve, 0, 0), 1.0) << name_of(curve);
  }
}

TEST(Blend, IsSymmetricalAboutTheMiddle) {
  for (const BlendCurve curve : kCurves) {
    for (int64_t n = 1; n <= 200; ++n)
      for (int64_t k = 0; k <= n; ++k)
        ASSERT_NEAR(fraction_of(curve, k, n) + fraction_of(curve, n - k, n), 1,
                    std::numeric_limits<double>::epsilon())
            << name_of(curve) << " " << k << " of " << n;
    EXPECT_EQ(fraction_of(curve, 4, 8), 0.5) << name_of(curve);
  }
}

TEST(Blend, SteeperCurvesStayLowerBeforeTheMiddle) {
  for (int64_t k = 1; k < 10; ++k) {
    EXPECT_GT(fraction_of(BlendCurve::kLinear, k, 20), fraction_of(BlendCurve::kCosine, k, 20));
    EXPECT_GT(fraction_of(BlendCurve::kLinear, k, 20), fraction_of(BlendCurve::kSigmoid6, k, 20));
    EXPECT_GT(fraction_of(BlendCurve::kSigmoid6, k, 20), fraction_of(BlendCurve::kSigmoid12, k, 20));
    EXPECT_GT(fraction_of(BlendCurve::kSigmoid12, k, 20), fraction_of(BlendCurve::kSigmoid24, k, 20));
  }
}

TEST(Blend, IsMonotonicBetweenItsEndsUpAndDown) {
  const std::vector<float> levels{0.0f, 1e-12f, 0.1f, 1.0f / 3, 0.5f, 0.7f, 1.0f};
  for (const BlendCurve curve : kCurves) {
    for (const float start : levels) {
      for (const float target : levels) {
        for (int64_t n = 0; n <= 300; n += n < 20 ? 1 : 35) {
          float before = start;
          for (int64_t k = 0; k <= n; ++k) {
            const float now =
                ramp_amplitude(curve, start, target, static_cast<double>(k), static_cast<double>(n));
            ASSERT_TRUE(start <= target ? now >= before && now <= target : now <= before && now >= target)
                << name_of(curve) << " from " << start << " to " << target << ", " << k << " of " << n;
            if (k == 0 && n > 0) {
              ASSERT_EQ(now, start);
            }
            before = now;
          }
          ASSERT_EQ(before, target);
        }
      }
    }
  }
}

TEST(Blend, RampsStepByStepAndThenRests) {
  for (const BlendCurve curve : kCurves) {
    for (const int32_t n : {1, 2, 3, 5, 8}) {
      SlotState state{.amplitude = 0.25f};
      begin_ramp(state, 0.7f, n, curve);
      EXPECT_EQ(state.amplitude, 0.25f);
      for (int32_t k = 1; k <= n; ++k) {
        EXPECT_TRUE(is_ramping(state));
        EXPECT_EQ(is_moving(state), k > 1);
        step_ramp(state);
        EXPECT_TRUE(is_moving(state));
        EXPECT_EQ(state.amplitude, ramp_amplitude(curve, 0.25f, 0.7f, k, n));
      }
      EXPECT_EQ(state.amplitude, 0.7f);
      EXPECT_FALSE(is_ramping(state));
      SlotState rest = state;
      rest.flags = 0;
      step_ramp(state);
      EXPECT_EQ(std::memcmp(&state, &rest, sizeof(state)), 0);
    }
  }
}

TEST(Blend, WithNoStepsIsThereAtOnce) {
  SlotState state{.flags = kSlotRamping, .amplitude = 0.25f};
  begin_ramp(state, 0.7f, 0, BlendCurve::kCosine);
  EXPECT_EQ(state.amplitude, 0.7f);
  EXPECT_FALSE(is_ramping(state));
}

TEST(Blend, WithNowhereToGoIsThereAtOnce) {
  SlotState state{.amplitude = 0.7f};
  begin_ramp(state, 0.7f, 8, BlendCurve::kCosine);
  EXPECT_EQ(state.amplitude, 0.7f);
  EXPECT_FALSE(is_ramping(state));
}

TEST(Blend, TurnsFromWhereItIs) {
  SlotState state;
  begin_ramp(state, 1, 4, BlendCurve::kLinear);
  step_ramp(state);
  EXPECT_EQ(state.amplitude, 0.25f);
  begin_ramp(state, 0, 2, BlendCurve::kLinear);
  EXPECT_EQ(state.amplitude, 0.25f);
  EXPECT_FALSE(is_moving(state));
  step_ramp(state);
  EXPECT_EQ(state.amplitude, 0.125f);
  step_ramp(state);
  EXPECT_EQ(state.amplitude, 0.0f);
}

TEST(Blend, KeepsAnotherFlag) {
  SlotState state{.flags = kSlotRemoving, .amplitude = 1};
  begin_ramp(state, 0, 1, BlendCurve::kLinear);
  step_ramp(state);
  EXPECT_EQ(state.flags, kSlotRemoving | kSlotMoving);
}

}  // namespace
}  // namespace espalier::grow
