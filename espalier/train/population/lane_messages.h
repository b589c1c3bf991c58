// What ranks tell each other once per step: every rank tells the one that decides what its lanes came to
// (LaneMessage), gets all choices back, and tells what the gates said of its own (GateMessage).
//
// Kept true: one function visits a message for both directions, and names every field of what it carries: a
// field that is added to a record and not here does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "espalier/train/control/controller.h"
#include "espalier/train/population/epoch_buffer.h"
#include "espalier/train/population/epoch_record.h"

namespace espalier::train {

struct LaneMessage {
  EpochBuffer::RemoteLane entry;     // what controllers on the device read
  LaneRecord record;                 // without action and gate, which are yet to come
  std::optional<LaneReport> report;  // none: there is nothing to decide
};

struct GateMessage {
  int64_t lane = 0;  // counted over the whole job
  grow::GateReport gate;
};

std::vector<std::byte> encode(std::vector<LaneMessage> messages);
std::vector<std::byte> encode(std::vector<GateMessage> messages);
std::vector<LaneMessage> lane_messages_in(std::span<const std::byte> bytes);
std::vector<GateMessage> gate_messages_in(std::span<const std::byte> bytes);

}  // namespace espalier::train
