// What a round saw, did and got: the policy's memory of it until the update.
//
// Kept true: allocated once, on the policy's device; a step is written at a place that a device tensor holds,
// so that one captured graph stores every step; nothing is read on the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/policy/action/sampler.h"
#include "espalier/policy/network.h"

namespace espalier::policy {

struct RolloutShape {
  int64_t lanes = 1;  // L
  int64_t steps = 1;  // T
};

// What is known when a step's action is chosen.
struct StepDecision {
  Observation seen;      // [L,...]
  RecurrentState state;  // before the step
  at::Tensor clears;     // [L] bool: the memory was emptied first
  Decision decision;
  at::Tensor value;  // [L] f32, in units of rewards
};

// What is known once the action had its effect.
struct StepOutcome {
  at::Tensor reward;     // [L] f32
  at::Tensor ended;      // [L] bool: a true end
  at::Tensor truncated;  // [L] bool
  at::Tensor bootstrap;  // [L] f32: value of the state that follows, where truncated or the last step
  at::Tensor counts;     // [L] bool: false for a lane that was frozen before the step
};

class Rollout {
 public:
  Rollout(const NetworkOptions& network, const RolloutShape& shape);

  void begin();  // a new round: the next step is the first
  // In turn, T times. More than T of them write outside: the caller counts.
  void store(const StepDecision& step);
  void store(const StepOutcome& outcome);  // and moves on to the next step

  // All that store() changes: "rollout.rewards".
  std::vector<NamedTensor> named_tensors() const;

  int64_t lanes() const { return shape_.lanes; }
  int64_t steps() const { return shape_.steps; }

  // [L,T,...], written by store(). Public to be read: the update and checkpoints go through all of them.
  Observation seen;      // features [L,T,F] f32, blueprints [L,T,S] i64
  RecurrentState state;  // [L,T,H] f32 each
  at::Tensor clears;     // [L,T] bool
  at::Tensor actions;    // [L,T,8] i64
  ChosenMasks masks;     // op [L,T,6], slot [L,T,S] bool
  at::Tensor log_probs;  // [L,T,8] f32
  at::Tensor values;     // [L,T] f32
  at::Tensor rewards;    // [L,T] f32
  at::Tensor ended;      // [L,T] bool
  at::Tensor truncated;  // [L,T] bool
  at::Tensor bootstrap;  // [L,T] f32
  at::Tensor counts;     // [L,T] bool

 private:
  void put(const at::Tensor& buffer, const at::Tensor& step);

  RolloutShape shape_;
  at::Tensor place_;  // [1] i64: the step now written
};

}  // namespace espalier::policy
