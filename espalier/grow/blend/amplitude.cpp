#include "espalier/grow/blend/amplitude.h"

namespace espalier::grow {
namespace {

void clear(SlotState& state, uint8_t flags) {
  state.flags &= static_cast<uint8_t>(~flags);
}

}  // namespace

void begin_ramp(SlotState& state, float target, int32_t steps, BlendCurve curve) {
  state.curve = curve;
  state.ramp_start = state.amplitude;
  state.target = target;
  state.ramp_steps = steps;
  state.ramp_done = 0;
  clear(state, kSlotMoving);
  if (steps > 0 && state.amplitude != target) {
    state.flags |= kSlotRamping;
  } else {
    state.amplitude = target;
    state.ramp_done = steps;
    clear(state, kSlotRamping);
  }
}

void step_ramp(SlotState& state) {
  clear(state, kSlotMoving);
  if (!is_ramping(state)) return;
  state.flags |= kSlotMoving;
  state.ramp_done += 1;
  state.amplitude =
      ramp_amplitude(state.curve, state.ramp_start, state.target, state.ramp_done, state.ramp_steps);
  if (state.ramp_done >= state.ramp_steps) clear(state, kSlotRamping);
}

}  // namespace espalier::grow
