// How a learning rate moves with the steps that were made, as shares of its peak: one text for the CPU and
// for kernels.
//
// Kept true: every operation is rounded once and none of them can be fused, so both sides have the same bits;
// but for a cosine, whose last bit is the library's.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "espalier/core/host_device.h"

namespace espalier::lanes {

enum class RateCurve : uint8_t { kLinear, kCosine, kConstant, kStep };

// Shares of all steps at which kStep falls, and what the rate falls to, each a tenth of the one before: He et
// al., arXiv 1512.03385, on CIFAR-10, at 32,000 and 48,000 of 64,000 batches.
inline constexpr double kFirstFall = 0.5, kSecondFall = 0.75;
inline constexpr double kAfterFirst = 0.1, kAfterSecond = 0.01;

// What the curve leaves of the peak in the middle of a step, of `steps` in all. Lines and cosines begin to
// fall where the warm-up ends, in steps; where it never does, they do not fall.
ESPALIER_HOST_DEVICE double share_left(RateCurve curve, double middle, double warm_up, double steps) {
  if (curve == RateCurve::kConstant) return 1;
  if (curve == RateCurve::kStep)
    return middle < kFirstFall * steps ? 1 : middle < kSecondFall * steps ? kAfterFirst : kAfterSecond;
  if (!(warm_up < steps)) return 1;
  const double fall = 1 / (steps - warm_up);  // per step
  if (curve == RateCurve::kLinear) {
    const double left = (steps - middle) * fall;
    return left < 1 ? left : 1;
  }
  const double fallen = (middle - warm_up) * fall;
  return 0.5 + 0.5 * std::cos((fallen < 0 ? 0 : fallen < 1 ? fallen : 1) * std::numbers::pi);
}

// What the rate of a step is of the peak, by the step's number in its run: the smaller of the warm-up, a line
// up from 0, and the curve, which meet at the peak.
struct RunShare {
  RateCurve curve = RateCurve::kConstant;
  double steps = 1;    // in the run
  double warm_up = 0;  // steps
  double rise = 0;     // per step of the warm-up; 0: none

  // step: from 0; its middle counts.
  ESPALIER_HOST_DEVICE double at(double step) const {
    const double middle = step + 0.5;
    const double left = share_left(curve, middle, warm_up, steps);
    if (!(rise > 0)) return left;
    const double risen = middle * rise;
    return risen < left ? risen : left;
  }
};

// What the rate of a lane is multiplied with, by its age: the steps that it has made.
struct RateShare {
  double factor = 1;
  double warm_up = 0;  // steps; 0: none
  double rise = 0;     // per step of the warm-up
  bool falls = false;  // along the curve, over the steps that were made and those that are left
  RateCurve curve = RateCurve::kConstant;

  ESPALIER_HOST_DEVICE bool takes_age() const { return rise > 0 || falls; }

  // steps_left: with the one that is made now.
  ESPALIER_HOST_DEVICE double at(double age, double steps_left) const {
    const double middle = age + 0.5;
    double share = factor;
    if (rise > 0) {
      const double risen = middle * rise;
      share = (risen < 1 ? risen : 1) * factor;
    }
    return falls ? share * share_left(curve, middle, warm_up, age + steps_left) : share;
  }
};

}  // namespace espalier::lanes
