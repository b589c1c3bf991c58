// A stack of networks, one per lane: their hosts, and the seeds that grow in the slots.
//
// Kept true:
// - A forward pass reads nothing on the host's side but the signature's facts (which stacks there are, their
//   capacities, whether they have gates): two states of one signature run the same kernels on the same
//   addresses, so a captured step serves them all.
// - Germinating, pruning or fossilising in one lane leaves every other lane's values bit for bit.
// - A lane without a seed in a slot passes it untouched, forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/host/cnn.h"
#include "espalier/grow/seeds/blueprint.h"
#include "espalier/grow/seeds/stack.h"
#include "espalier/tensor/device_table.h"
#include "espalier/tensor/named.h"

namespace espalier::grow {

// Parameters that are updated together. Groups of one name stay the same objects for a stack's life.
struct ParameterGroup {
  std::string name;                               // "host", "r0c1.conv_light", "r0c1.conv_light.gate"
  int64_t slot = -1;                              // action index; -1: the host
  std::vector<lanes::NamedParameter> parameters;  // [E,...] each: E lanes for the host, entries for a stack
  at::Tensor entries;  // [E] i64 device, fixed: the lane of each entry, -1 empty; undefined: host
  at::Tensor frozen;   // [E] bool device, fixed: entries that are not to be updated; undefined: host
  std::vector<int64_t> entry_lanes;  // [E], entries as the host knows them; empty for the host
};

// One seed's place.
struct SeedPlace {
  std::string group;  // its parameters' group; those of its gate are in group + ".gate", at the same entry
  int64_t lane = 0;
  int64_t slot = 0;
  int64_t entry = 0;
};

// What apply() changed.
struct GrowthReport {
  std::vector<SeedPlace> planted;  // optimiser state of these entries has to be reset
  std::vector<SeedPlace> released;
  std::vector<SeedPlace> gated;  // whose gate came into use: its optimiser state has to be reset
  bool new_signature = false;
};

class NetworkStack final : private SlotGrowth {
 public:
  // Masters are f32, or f64 where that is computed in. The registry is copied.
  NetworkStack(const HostMaker& host, const HostFrame& frame, const BlueprintRegistry& blueprints,
               at::Device device, at::ScalarType compute);
  NetworkStack(const CnnHostOptions& options, const BlueprintRegistry& blueprints, at::Device device,
               at::ScalarType compute);
  ~NetworkStack() override;

  // What the tables take that are uploaded between epochs.
  static int64_t table_bytes(int64_t lanes, int64_t slots, int32_t num_blueprints);

  Host& host() { return *host_; }
  const Host& host() const { return *host_; }
  const std::vector<SlotSpec>& slots() const { return host_->slots(); }  // by action index
  const BlueprintRegistry& blueprints() const { return blueprints_; }
  int64_t num_lanes() const { return host_->frame().lanes; }
  int64_t num_slots() const { return static_cast<int64_t>(host_->slots().size()); }

  // Between epochs, after the lifecycle moved: plants new seeds, releases those that are gone, and writes all
  // coefficients in one copy. states: [L,S], as Lifecycle::states(). A seed is new where the lane's slot held
  // none, or one of another number or blueprint. Amplitudes are those of the states, at the epoch's end.
  GrowthReport apply(std::span<const SlotState> states);

  // From now on seeds that go leave their room behind, so that signatures come again and again instead of
  // changing with every seed. For devices on which a signature is captured.
  void keep_room() { room_ = SeedStack::Room::kKept; }

  // Within an epoch, as part of what is captured: the amplitudes of the batch that is being trained, if
  // anything grows. batch: [1] f64 device, counted from any epoch's first. The last brings back the states'.
  void move_amplitudes(const at::Tensor& batch, int64_t batches_per_epoch);
  const at::Tensor& amplitudes() const { return amplitudes_; }  // [S,L] f32 device, by action index

  // Whether there are stacks with room in the slot.
  bool has_stacks(int64_t slot) const { return holds(slot); }

  // What apply() was last given, [L,S]: what stands now, also while the lifecycle has moved on.
  std::span<const SlotState> applied() const { return applied_; }

  // Bare hosts in all lanes, with the first values of another seed; those of seeds to come are its too.
  // Nothing moves: captured steps stay right.
  GrowthReport reset(uint64_t seed);

  // x [L,B,C,H,W], see lanes/entry.h; mask [L,B] bool or undefined. Returns logits [L,B,num_classes] of the
  // master type. sum_over_all: see HostContext; seeds have no statistics of a batch.
  at::Tensor forward(const at::Tensor& x, lanes::Mode mode, const at::Tensor& mask = {},
                     const lanes::SumOverAll& sum_over_all = {});
  // As it is evaluated, and beside it with the seeds of each of these slots left out in all lanes that hold
  // one: what comes before a slot is done once. slots: action indices.
  HostBranches forward_without_each(const at::Tensor& x, std::span<const int64_t> slots);

  // What a captured step depends on: "r0c1.conv_light x4 gated, r1c0.norm x1"; "" for bare hosts.
  std::string signature() const;

  // The host's first, then by slot and blueprint those that have entries; gates where any seed has GATE.
  std::vector<ParameterGroup> groups();
  // All parameters of groups(), for lane_backward().
  std::vector<lanes::LaneParameter*> parameters();
  // Running statistics, [L,C] each.
  std::vector<at::Tensor> buffers() const;

  // Everything that one lane is, without the lane axis: views of masters and running statistics, seeds and
  // their gates included. A lane in the same states has the same names. After writing, refresh().
  std::vector<NamedTensor> lane_values(int64_t lane);
  void refresh();  // compute copies follow the masters

  // Counts one lane's, what grew on it included (gates where they are in use).
  int64_t num_parameters(int64_t lane);

 private:
  struct Slot;

  bool holds(int64_t slot) const override;
  at::Tensor grow(int64_t slot, at::Tensor h) override;
  at::Tensor holders(int64_t slot) const override;
  SeedStack& stack_of(int64_t slot, int32_t blueprint);

  BlueprintRegistry blueprints_;
  at::TensorOptions tensor_options_;
  at::ScalarType compute_;
  std::unique_ptr<Host> host_;
  DeviceTable table_;
  DeviceTable::Column<uint8_t> states_;       // [L * S * sizeof(SlotState)]: what amplitudes move by
  at::Tensor amplitudes_;                     // [S,L] f32
  at::Tensor end_of_epoch_;                   // [1] f64: the only batch of an epoch of one
  std::vector<std::unique_ptr<Slot>> slots_;  // by action index
  std::vector<SlotState> applied_;            // [L,S]
  SeedStack::Room room_ = SeedStack::Room::kNeeded;
  // The mode of the forward pass under way.
  lanes::Mode mode_ = lanes::Mode::kTrain;
};

}  // namespace espalier::grow
