// The amplitude of a seed over time: from where it is to a target, over n steps, along a curve.
//
// Kept true: a ramp is monotonic, starts exactly where the amplitude was and ends exactly at the target;
// n = 0 is there at once. All five curves are symmetrical about their middle: f(k) + f(n - k) = 1.
// When a ramp may begin is the lifecycle's matter; what a = 0 does to the output the operators'.
#pragma once

#include <cstdint>

#include "espalier/core/seed_stage.h"

namespace espalier::grow {

// The curve's rise after `done` of `steps` steps: 0 at the beginning (and before), 1 at the end (and after).
double curve_fraction(BlendCurve curve, int64_t done, int64_t steps);

// The amplitude after `done` of `steps` steps from `start` to `target`.
float ramp_amplitude(BlendCurve curve, float start, float target, int64_t done, int64_t steps);

// Begins a ramp from the present amplitude. With no steps, or nowhere to go, it is over at once.
void begin_ramp(SlotState& state, float target, int32_t steps, BlendCurve curve);

// Moves a ramp on by one step, and ends it when it arrives. Does nothing where none is under way.
void step_ramp(SlotState& state);

}  // namespace espalier::grow
