// The amplitude along a ramp: the arithmetic that the lifecycle on the host and the kernel that moves
// amplitudes batch by batch share.
//
// Kept true: a ramp is monotonic, starts exactly at its start and ends exactly at its target. All five curves
// are symmetrical about their middle: f(k) + f(n - k) = 1. Whole steps and parts of a step are on one curve.
#pragma once

#include <cmath>
#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/core/seed_stage.h"

namespace espalier::grow {

// Odd, from -1 at -1 to 1 at 1. A logistic curve of steepness k over [0, 1], normalised to end at 0 and 1, is
// (1 + tanh(k x / 4) / tanh(k / 4)) / 2 with x in [-1, 1]; in this form its ends and its symmetry are exact.
ESPALIER_HOST_DEVICE double odd_curve(BlendCurve curve, double x) {
  constexpr double kHalfPi = 1.57079632679489661923;
  double steepness = 6;
  switch (curve) {
    case BlendCurve::kLinear:
      return x;
    case BlendCurve::kCosine:
      return std::sin(kHalfPi * x);
    case BlendCurve::kSigmoid6:
      break;
    case BlendCurve::kSigmoid12:
      steepness = 12;
      break;
    case BlendCurve::kSigmoid24:
      steepness = 24;
      break;
  }
  return std::tanh(steepness * x / 4) / std::tanh(steepness / 4);
}

// The curve's rise after `done` of `steps` steps: 0 at the beginning (and before), 1 at the end (and after).
ESPALIER_HOST_DEVICE double curve_fraction(BlendCurve curve, double done, double steps) {
  if (done >= steps) return 1;
  if (done <= 0) return 0;
  return (1 + odd_curve(curve, (2 * done - steps) / steps)) / 2;
}

// The amplitude after `done` of `steps` steps from `start` to `target`.
ESPALIER_HOST_DEVICE float ramp_amplitude(BlendCurve curve, float start, float target, double done,
                                          double steps) {
  if (done >= steps) return target;
  const double way = static_cast<double>(target) - static_cast<double>(start);
  const auto amplitude = static_cast<float>(start + way * curve_fraction(curve, done, steps));
  const float low = start < target ? start : target, high = start < target ? target : start;
  return amplitude < low ? low : amplitude > high ? high : amplitude;
}

// The amplitude once `share` of the step under way is done, in (0, 1]; with 1 it is the state's own.
ESPALIER_HOST_DEVICE float amplitude_within_step(const SlotState& state, double share) {
  if (!is_moving(state) || share >= 1) return state.amplitude;
  return ramp_amplitude(state.curve, state.ramp_start, state.target, state.ramp_done - 1 + share,
                        state.ramp_steps);
}

}  // namespace espalier::grow
