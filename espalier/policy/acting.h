// The policy at work: what the last epoch told goes in, one action per lane comes out, and what it was worth
// is known after the next epoch. For all lanes at once, on the policy's device.
//
//   acting.begin(round, ActingMode::kLearning);
//   for (t = 0; t < episode_length; ++t) {
//     (an epoch is read: `readings`, and what the decision before it was worth: a RewardAccount)
//     if (t > 0) acting.finish_step(account.reward());
//     acting.act(readings, account.frozen());  // -> actions(), which the lifecycle carries out
//   }
//   (an epoch is read)
//   acting.finish_step(account.reward());           // the last step's; then Ppo::update(acting.rollout())
//
// Kept true: act() and finish_step() read nothing on the host, and everything they write and return keeps its
// address, so each can be captured once for each way of acting and replayed for every step of every round, as
// long as its arguments keep theirs; a frozen lane only waits and does not count.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/policy/action/masks.h"
#include "espalier/policy/action/sampler.h"
#include "espalier/policy/learn/ppo.h"
#include "espalier/policy/learn/rollout.h"
#include "espalier/policy/network.h"
#include "espalier/policy/observe/normalizer.h"
#include "espalier/policy/observe/observation.h"
#include "espalier/policy/reward/rule.h"

namespace espalier::policy {

enum class ActingMode {
  kLearning,   // draws; fills the rollout and collects for the normaliser
  kSampling,   // draws; keeps nothing
  kLikeliest,  // takes the likeliest; keeps nothing
};

struct ActingOptions {
  int64_t lanes = 1;
  int64_t episode_length = 1;                                    // T, in steps
  double least_healthy_norm = 1e-7, largest_healthy_norm = 1e3;  // as ObserverOptions'
  uint64_t seed = 0;                                             // for the draws
};

class Acting {
 public:
  // All of them on one device, and have to outlive it. values: Ppo::values().
  Acting(const PolicyNetwork& network, const MaskRules& rules, const ActionSampler& sampler,
         const ValueNormalizer& values, const ActingOptions& options);

  // All lanes begin an episode. Draws depend on (seed, round, step, lane).
  void begin(int64_t round, ActingMode mode);

  // readings: of the last epoch; frozen: [L] bool, lost in this episode.
  void act(const RawObservation& readings, const at::Tensor& frozen);
  // What the last act() was worth.
  void finish_step(const Reward& reward);

  // What the last act() gave.
  const at::Tensor& actions() const { return actions_; }  // [L,8] i64, one index per head
  const at::Tensor& illegal() const { return illegal_; }  // [L] bool: in a state that no lifecycle makes

  const Rollout& rollout() const { return rollout_; }  // since the last begin() that was to learn

  std::vector<NamedTensor> state() const;  // what a checkpoint between rounds holds
  // What one in the middle of an episode holds besides: all that act() and finish_step() change.
  std::vector<NamedTensor> episode_state() const;

 private:
  const PolicyNetwork& network_;
  const MaskRules& rules_;
  const ActionSampler& sampler_;
  const ValueNormalizer& values_;
  ActingOptions options_;
  ActingMode mode_ = ActingMode::kLearning;
  Observer observer_;
  ObservationNormalizer normalizer_;
  Rollout rollout_;
  RecurrentState state_;
  at::Tensor round_;      // [1] i64
  at::Tensor step_;       // [1] i64: acts since begin()
  at::Tensor clears_;     // [L] bool
  at::Tensor actions_;    // [L,8] i64
  at::Tensor illegal_;    // [L] bool
  at::Tensor no_flags_;   // [L] bool, false
  at::Tensor no_values_;  // [L] f32, 0
};

}  // namespace espalier::policy
