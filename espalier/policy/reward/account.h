// What every decision of an episode was worth, whoever decided: known after the epoch that follows it. Keeps
// what a rule compares with from epoch to epoch.
//
// Kept true: nothing is read on the host, and everything lies where it did, so add() can be captured once for
// each part of an episode; a lost lane is frozen from the decision that lost it on; where it goes on instead,
// it is compared with what it went back to, and its seeds keep their credits.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "espalier/policy/reward/rule.h"

namespace espalier::policy {

// Where an epoch stands in its episode. Before the first there was no decision, after the last there will be
// none.
enum class EpisodePart { kFirst, kMiddle, kLast };

// What happens to a lane that is lost.
enum class Losing {
  kEndsEpisode,  // it only waits and does not count, until the next episode
  kGoesOn,       // it goes back to what it was before the epoch, which costs it the failure, and goes on
};

class RewardAccount {
 public:
  RewardAccount(const std::string& rule, const RewardFrame& frame, Losing losing = Losing::kEndsEpisode);

  void begin();  // all lanes begin an episode
  // After every epoch. op: [L] i64, of the decision before it, any stride; lost: [L] bool, in this epoch;
  // retired: [L] bool, given up before it, only where lanes that were lost go on.
  void add(const RawObservation& epoch, const at::Tensor& op, const at::Tensor& lost, EpisodePart part,
           const at::Tensor& retired = {});

  // Before add(): lanes without an accuracy so far, [L] bool, since no epoch was validated or those that were
  // are lost, begin with the one that the epoch shows, [L], so that to measure one for the first time is no
  // gain.
  void begin_accuracy(const at::Tensor& is_first, const at::Tensor& accuracy);

  // What the decision before the last epoch was worth; zeros, counting for nothing, after the first.
  const Reward& reward() const { return reward_; }
  // [L] bool: lost by a decision that is accounted for, or given up. They only wait, those that go on in this
  // step alone.
  const at::Tensor& frozen() const { return frozen_; }

  // What a checkpoint in the middle of an episode holds.
  std::vector<NamedTensor> state() const;

 private:
  void remember(const RawObservation& epoch);
  at::Tensor unless_lost(const at::Tensor& now, const at::Tensor& before) const;

  Reward reward_;
  Losing losing_;
  at::Tensor accuracy_before_;  // [L] f32: after the epoch before
  at::Tensor states_before_;    // [L,S,kSlotStateBytes] u8: the same
  at::Tensor contributions_;    // [L,S] f32 points: the last measured of the seed in the slot; NaN: none
  at::Tensor lost_;             // [L] bool: in this episode; of those that go on, in this epoch
  at::Tensor frozen_;           // [L] bool
  at::Tensor is_last_;          // [1] bool
};

}  // namespace espalier::policy
