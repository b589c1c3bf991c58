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

#include "espalier/policy/action/masks.h"
#include "espalier/policy/network.h"
#include "espalier/policy/observe/features.h"

namespace espalier::policy {

// What the last epoch told, dense, on one device. Filled in again at the same place for every step.
struct RawObservation {
  at::Tensor lanes;  // [L,kNumLaneReadings] f32, by the numbers of LaneReading
  at::Tensor
      slots;  // [L,S,kNumSlotReadings] f32, by the numbers of SlotReading; NaN: not measured in this step
  at::Tensor states;  // [L,S,kSlotStateBytes] u8: SlotState as the lifecycle has it
};

struct ObserverOptions {
  int64_t lanes = 1;
  ActionSpace space;
  int64_t episode_length = 1;  // in steps
  // Gradient norms of seeds that gates let pass (grow/gates.h): one outside cannot go on.
  double least_healthy_norm = 1e-7, largest_healthy_norm = 1e3;
  at::Device device = at::kCPU;
};

// Readings with nothing measured, in empty slots.
RawObservation empty_raw_observation(const ObserverOptions& options);

// [L,S] bool: as holds_seed() of core says of every slot. states: as RawObservation's.
at::Tensor holds_seed(const at::Tensor& states);
// The same of is_undecided().
at::Tensor is_undecided(const at::Tensor& states);

class Observer {
 public:
  explicit Observer(const ObserverOptions& options);

  // Once a step. last_op: [L] i64, of the step before; step: [1] i64, place in the episode, from 0; clears:
  // [L] bool, lanes whose episode begins with this step.
  void observe(const RawObservation& readings, const at::Tensor& last_op, const at::Tensor& step,
               const at::Tensor& clears);

  // What the last observe() saw, always in the same memory.
  const Observation& seen() const { return seen_; }  // features [L,num_features(S)] f32, blueprints [L,S] i64
  const SlotFields& fields() const { return fields_; }  // without `frozen`

  // What a checkpoint in the middle of an episode holds.
  std::vector<NamedTensor> state() const;

 private:
  ObserverOptions options_;
  Observation seen_;
  SlotFields fields_;
  at::Tensor lane_memory_;    // [L,kNumLaneMemory] f32
  at::Tensor contributions_;  // [L,S] f32 points: the last measured of the seed in the slot; NaN: none
  at::Tensor measured_ago_;   // [L,S] i64 steps
};

}  // namespace espalier::policy
