// The amplitude of a seed over time, step by step: from where it is to a target, over n steps, along a curve
// (ramp.h).
//
// Kept true: n = 0 is there at once; a state says whether its amplitude moves within the step under way.
// When a ramp may begin is the lifecycle's matter; what a = 0 does to the output the operators'.
#pragma once

#include <cstdint>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/blend/ramp.h"

namespace espalier::grow {

// Begins a ramp from the present amplitude. With no steps, or nowhere to go, it is over at once.
void begin_ramp(SlotState& state, float target, int32_t steps, BlendCurve curve);

// A step of time: moves a ramp on by one step, within which the amplitude moves, and ends it when it arrives.
// Where none is under way the amplitude rests.
void step_ramp(SlotState& state);

}  // namespace espalier::grow
