// The packed states of slots as they lie on the policy's device, read by the CPU and by kernels.
//
// Kept true: nothing is assumed of the bytes: a stage or an operator outside of its enum is read as the
// number it is, and whoever uses it must cope with that.
#pragma once

#include <cstdint>
#include <cstring>

#include "espalier/core/host_device.h"
#include "espalier/core/seed_stage.h"

namespace espalier::policy {

inline constexpr int64_t kSlotStateBytes = sizeof(SlotState);

// bytes: [..., kSlotStateBytes] u8 dense; the slots of lane after lane.
ESPALIER_HOST_DEVICE SlotState slot_state_at(const uint8_t* bytes, int64_t index) {
  SlotState state;
  memcpy(&state, bytes + index * kSlotStateBytes, sizeof(state));
  return state;
}

}  // namespace espalier::policy
