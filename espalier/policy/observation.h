// What the policy sees of every lane: one operator from what was measured and the packed states of the slots
// to features, blueprint indices and the fields that masks are made of. docs/observation.md has the table.
//
// Kept true: features are finite whatever comes in (NaN, Inf, bytes that are no stage), and blueprint indices
// are in range; nothing is read on the host, and all results and the memory of the episode stay where they
// are, so that it can be captured; a lane's numbers depend on that lane alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/policy/action_masks.h"
#include "espalier/policy/network.h"
#include "espalier/policy/observation_features.h"

namespace espalier::policy {

// What the last epoch told, dense, on one device. Filled in anew at the same place for every step.
struct LaneSigns {
  at::Tensor lanes;   // [L,kNumLaneSigns] f32, by the numbers of LaneSign
  at::Tensor slots;   // [L,S,kNumSlotSigns] f32, by the numbers of SlotSign; NaN: not measured in this step
  at::Tensor states;  // [L,S,kSlotStateBytes] u8: SlotState as the lifecycle has it
};

struct ObserverOptions {
  int64_t lanes = 1;
  ActionSpace space;
  int64_t episode_length = 1;  // in steps
  at::Device device = at::kCPU;
};

// Signs with nothing measured, in empty slots.
LaneSigns empty_signs(const ObserverOptions& options);

class Observer {
 public:
  explicit Observer(const ObserverOptions& options);

  // Once a step. last_op: [L] i64, of the step before; step: [1] i64, place in the episode, from 0; clears:
  // [L] bool, lanes whose episode begins with this step.
  void observe(const LaneSigns& signs, const at::Tensor& last_op, const at::Tensor& step,
               const at::Tensor& clears);

  // Of the last observe(), always in the same memory.
  const Observation& seen() const { return seen_; }  // features [L,num_features(S)] f32, blueprints [L,S] i64
  const SlotFields& fields() const { return fields_; }  // without `frozen`
  // [L,S] f32 points: the last that was measured of the seed now in the slot; NaN: none.
  const at::Tensor& contributions() const { return contributions_; }

  // What a checkpoint in the middle of an episode holds.
  std::vector<NamedTensor> state() const;

 private:
  ObserverOptions options_;
  Observation seen_;
  SlotFields fields_;
  at::Tensor lane_memory_;    // [L,kNumLaneMemory] f32
  at::Tensor contributions_;  // [L,S] f32
  at::Tensor measured_ago_;   // [L,S] i64 steps
};

}  // namespace espalier::policy
