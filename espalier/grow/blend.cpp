#include "espalier/grow/blend.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace espalier::grow {
namespace {

// Odd, from -1 at -1 to 1 at 1. A logistic curve of steepness k over [0, 1], normalised to end at 0 and 1, is
// (1 + tanh(k x / 4) / tanh(k / 4)) / 2 with x in [-1, 1]; in this form its ends and its symmetry are exact.
double odd_shape(BlendCurve curve, double x) {
  const auto logistic = [x](double steepness) {
    return std::tanh(steepness * x / 4) / std::tanh(steepness / 4);
  };
  switch (curve) {
    case BlendCurve::kLinear:
      return x;
    case BlendCurve::kCosine:
      return std::sin(std::numbers::pi / 2 * x);
    case BlendCurve::kSigmoid6:
      return logistic(6);
    case BlendCurve::kSigmoid12:
      return logistic(12);
    case BlendCurve::kSigmoid24:
      return logistic(24);
  }
  return x;
}

}  // namespace

double curve_fraction(BlendCurve curve, int64_t done, int64_t steps) {
  if (done >= steps) return 1;
  if (done <= 0) return 0;
  const double x = static_cast<double>(2 * done - steps) / static_cast<double>(steps);
  return (1 + odd_shape(curve, x)) / 2;
}

float ramp_amplitude(BlendCurve curve, float start, float target, int64_t done, int64_t steps) {
  if (done >= steps) return target;
  const double way = static_cast<double>(target) - static_cast<double>(start);
  const auto amplitude = static_cast<float>(start + way * curve_fraction(curve, done, steps));
  return std::clamp(amplitude, std::min(start, target), std::max(start, target));
}

void begin_ramp(SlotState& state, float target, int32_t steps, BlendCurve curve) {
  state.curve = curve;
  state.ramp_start = state.amplitude;
  state.target = target;
  state.ramp_steps = steps;
  state.ramp_done = 0;
  if (steps > 0 && state.amplitude != target) {
    state.flags |= kSlotRamping;
  } else {
    state.amplitude = target;
    state.ramp_done = steps;
    state.flags &= static_cast<uint8_t>(~kSlotRamping);
  }
}

void step_ramp(SlotState& state) {
  if (!is_ramping(state)) return;
  state.ramp_done += 1;
  state.amplitude =
      ramp_amplitude(state.curve, state.ramp_start, state.target, state.ramp_done, state.ramp_steps);
  if (state.ramp_done >= state.ramp_steps) state.flags &= static_cast<uint8_t>(~kSlotRamping);
}

}  // namespace espalier::grow
