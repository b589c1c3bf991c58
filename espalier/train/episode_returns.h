// What an episode was worth to every lane, whoever decided: the policy's own rewards (policy/reward_terms.h),
// computed on the host from what was reported.
//
// Kept true: the terms are those that a policy learns from, step by step; a lane that was lost gets nothing
// afterwards.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "espalier/policy/reward.h"
#include "espalier/train/environments.h"
#include "espalier/train/epoch_record.h"

namespace espalier::train {

class StateArchive;

using RewardTerms = std::array<double, policy::kNumRewardTerms>;

class EpisodeReturns {
 public:
  EpisodeReturns(const Environments& environments, const policy::RewardOptions& options);

  void begin();
  // After every epoch, in their order; the actions in it are those that the next one shows the worth of.
  enum class Place { kWithin, kLast };
  void add(const EpochRecord& epoch, Place place);

  void visit_state(StateArchive& archive);

  // Of the decision before the last epoch: 0 after the first.
  const std::vector<RewardTerms>& last_terms() const { return last_; }
  // Since begin().
  const std::vector<RewardTerms>& terms() const { return sums_; }   // [L]
  const std::vector<int64_t>& lengths() const { return lengths_; }  // [L] decisions that counted
  const std::vector<double>& returns() const { return returns_; }   // [L] undiscounted

 private:
  int64_t slots_;
  double host_parameters_;
  policy::Reward reward_;
  policy::LaneSigns signs_;     // after
  at::Tensor states_before_;    // [L,S,kSlotStateBytes] u8
  at::Tensor accuracy_before_;  // [L] f32
  at::Tensor contributions_;    // [L,S] f32
  at::Tensor num_seeds_;        // [L,S] i64: which seed the contribution is of
  at::Tensor op_;               // [L] i64
  at::Tensor lost_;             // [L] bool: ever
  at::Tensor frozen_;           // [L] bool: and accounted for
  int64_t epochs_ = 0;
  std::vector<RewardTerms> last_;
  std::vector<RewardTerms> sums_;
  std::vector<int64_t> lengths_;
  std::vector<double> returns_;
};

}  // namespace espalier::train
