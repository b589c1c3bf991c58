// The seeds of one blueprint in one slot: a stacked module with room for every lane, in which as many
// entries are in use as the lanes need.
//
// Kept true: storage is made once, for all lanes, and never moves; the capacity is one of 0, 1, 2, 4, ..., L
// and reaches the last entry in use; a seed keeps its entry for life; an entry that is planted or released
// leaves the others' values bit for bit, and so does the capacity.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/blend/gate.h"
#include "espalier/grow/seeds/blueprint.h"
#include "espalier/tensor/device_table.h"

namespace espalier::grow {

// What a seed's first values depend on, besides its place in the host.
struct SeedKey {
  uint64_t seed = 0;
  int64_t lane_id = 0;  // CnnHostOptions::lane_id()
  int32_t number = 0;   // which of the seeds that grew in the lane's slot
};

class SeedStack {
 public:
  // name: "r0c1.conv_light". build.entries: all lanes. The stack's tables are taken from `table`, which must
  // have table_bytes() left.
  SeedStack(std::string name, const Blueprint& blueprint, const SeedBuild& build, DeviceTable& table);

  static int64_t table_bytes(int64_t lanes);

  const std::string& name() const { return name_; }
  int64_t capacity() const { return capacity_; }
  bool has_gates() const {
    return has_gates_;
  }  // whether any seed blends with GATE, or did, where room is kept
  int64_t entry_of(int64_t lane) const;      // -1: none
  std::span<const int64_t> lanes() const;    // [capacity], the lane of each entry, -1 empty
  std::vector<int64_t> gated_lanes() const;  // [capacity], the same; -1 also where it has no use for its gate

  // The lowest free entry, with its first values.
  int64_t plant(int64_t lane, const SeedKey& key);
  void release(int64_t lane);

  // What the lane's state says about its seed. Everything reaches the device with the table's next upload.
  enum class GateChange { kNone, kOpened };  // opened: the seed now blends with GATE, and did not before
  GateChange set_state(int64_t lane, const SlotState& state);
  // After a round of changes: fits the capacity, and notes whether there are gates.
  enum class Room { kNeeded, kKept };  // kept: neither the capacity nor gates are given up
  void end_changes(Room room);

  // input: [capacity,B,C,H,W]. The seeds' outputs, and their gates or undefined.
  struct Output {
    at::Tensor seeds;  // [capacity,B,C,H,W]
    at::Tensor gates;  // [capacity,B], or undefined
  };
  Output forward(const at::Tensor& input, lanes::Mode mode);

  const at::Tensor& entries() const { return entries_; }                // [capacity] i64 device
  const at::Tensor& entry_of_lane() const { return entry_of_.device; }  // [L] i64 device
  const at::Tensor& frozen() const { return frozen_; }                  // [capacity] bool device
  const at::Tensor& gate_frozen() const { return gate_frozen_; }        // [capacity] bool device

  std::vector<lanes::NamedParameter> parameters() { return module_->parameters(); }
  std::vector<lanes::NamedParameter> gate_parameters() { return gate_.parameters(); }
  std::vector<lanes::NamedParameter> all_parameters();  // the gate's last, as "gate.hidden.weight"
  void refresh();                                       // compute copies follow the masters

 private:
  void check_parameters(const Blueprint& blueprint, const SeedBuild& build);
  void use_capacity(int64_t capacity);

  std::string name_;
  std::unique_ptr<SeedModule> module_;
  BlendGate gate_;
  int64_t capacity_ = 0;
  bool has_gates_ = false;
  bool has_new_values_ = false;
  std::vector<bool> gated_;  // [L], by entry

  DeviceTable::Column<int64_t> lane_of_entry_;  // [L]
  DeviceTable::Column<int64_t> entry_of_;       // [L], by lane
  DeviceTable::Column<bool> is_frozen_;         // [L], by entry: empty, not in training yet, or being removed
  DeviceTable::Column<bool> is_gate_frozen_;    // [L], by entry: frozen, or not blended by its gate

  at::Tensor entries_;
  at::Tensor frozen_;
  at::Tensor gate_frozen_;
};

}  // namespace espalier::grow
