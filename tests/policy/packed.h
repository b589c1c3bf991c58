// Packed states of slots for tests, as a lifecycle would copy them to the policy's device.
#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <vector>

#include "espalier/policy/packed_states.h"

namespace espalier::policy::testing {

using Lanes = std::vector<std::vector<SlotState>>;

// [L,S,kSlotStateBytes] u8
inline at::Tensor packed(const Lanes& lanes) {
  const auto slots = static_cast<int64_t>(lanes[0].size());
  const at::Tensor bytes = at::zeros({static_cast<int64_t>(lanes.size()), slots, kSlotStateBytes}, at::kByte);
  for (size_t lane = 0; lane < lanes.size(); ++lane)
    std::memcpy(bytes[static_cast<int64_t>(lane)].mutable_data_ptr(), lanes[lane].data(),
                lanes[lane].size() * sizeof(SlotState));
  return bytes;
}

}  // namespace espalier::policy::testing
