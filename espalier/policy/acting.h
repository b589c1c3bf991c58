// The policy at work: what the last epoch told goes in, one action a lane comes out, and what it was worth is
// known after the next epoch. For all lanes at once, on the policy's device.
//
//   acting.begin(round, Playing::kLearning);
//   for (t = 0; t < episode_length; ++t) {
//     (an epoch fills acting.signs())
//     if (t > 0) acting.settle();
//     acting.act();                      // -> actions(), which the lifecycle carries out
//   }
//   (an epoch fills acting.signs())
//   acting.settle();                     // the last step's; then Ppo::update(acting.rollout())
//
// Kept true: act() and settle() read nothing on the host, and everything they read, write and give lies where
// it did, so each can be captured once for a way of playing and replayed for every step of every round; a
// lane that was lost only waits and does not count, until the next begin().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/policy/action_masks.h"
#include "espalier/policy/network.h"
#include "espalier/policy/observation.h"
#include "espalier/policy/observation_normalizer.h"
#include "espalier/policy/ppo.h"
#include "espalier/policy/reward.h"
#include "espalier/policy/rollout.h"
#include "espalier/policy/sampler.h"

namespace espalier::policy {

enum class Playing {
  kLearning,   // draws; fills the rollout and collects for the normaliser
  kSampling,   // draws; keeps nothing
  kLikeliest,  // takes the likeliest; keeps nothing
};

struct ActingOptions {
  int64_t lanes = 1;
  int64_t episode_length = 1;  // T, in steps
  RewardMode reward = RewardMode::kShaped;
  double gamma = 0.995;  // of the potential in rewards; that of GAE
  uint64_t seed = 0;     // of the draws
};

class Acting {
 public:
  // All of them on one device, and have to outlive it. values: Ppo::values().
  Acting(const PolicyNetwork& network, const MaskRules& rules, const ActionSampler& sampler,
         const ValueNormalizer& values, const ActingOptions& options);

  // All lanes begin an episode. Draws depend on (seed, round, step, lane).
  void begin(int64_t round, Playing playing);

  // The caller fills these in, at the places where they are: signs before act() and before settle(), which
  // may see the same; failed before settle(): lanes lost since act().
  const LaneSigns& signs() const { return signs_; }
  const at::Tensor& failed() const { return failed_; }  // [L] bool

  void act();
  void settle();

  // Of the last act().
  const at::Tensor& actions() const { return actions_; }  // [L,8] i64, one index a head
  const at::Tensor& illegal() const { return illegal_; }  // [L] bool: in a state that no lifecycle makes
  // Of the last settle().
  const Reward& reward() const { return reward_; }
  const at::Tensor& term_sums() const { return term_sums_; }  // [L,kNumRewardTerms] f32, since begin()
  const at::Tensor& frozen() const { return frozen_; }        // [L] bool: lost in this episode

  const Rollout& rollout() const { return rollout_; }  // of the last begin() that was to learn
  const Observer& observer() const { return observer_; }

  std::vector<NamedTensor> state() const;  // what a checkpoint between rounds holds
  // What one in the middle of an episode holds besides: all that act() and settle() change.
  std::vector<NamedTensor> episode_state() const;

 private:
  const PolicyNetwork& network_;
  const MaskRules& rules_;
  const ActionSampler& sampler_;
  const ValueNormalizer& values_;
  ActingOptions options_;
  Playing playing_ = Playing::kLearning;
  LaneSigns signs_;
  Observer observer_;
  ObservationNormalizer normalizer_;
  Reward reward_;
  Rollout rollout_;
  RecurrentState state_;
  at::Tensor round_;            // [1] i64
  at::Tensor step_;             // [1] i64: acts since begin()
  at::Tensor clears_;           // [L] bool
  at::Tensor actions_;          // [L,8] i64
  at::Tensor illegal_;          // [L] bool
  at::Tensor failed_;           // [L] bool
  at::Tensor frozen_;           // [L] bool
  at::Tensor is_last_;          // [1] bool
  at::Tensor accuracy_before_;  // [L] f32: at the last act()
  at::Tensor states_before_;    // [L,S,kSlotStateBytes] u8: at the last act()
  at::Tensor no_flags_;         // [L] bool, false
  at::Tensor no_values_;        // [L] f32, 0
  at::Tensor term_sums_;        // [L,kNumRewardTerms] f32
};

}  // namespace espalier::policy
