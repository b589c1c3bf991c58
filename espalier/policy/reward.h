// What a step was worth to every lane: one operator, all lanes at once, its terms side by side.
//
// Kept true: nothing is read on the host, and results stay where they are, so that it can be captured; a
// lane's numbers depend on that lane alone; a frozen lane gets 0 and does not count; a reward is the sum of
// its terms. A measurement that is not a number comes out as such where the lane is not flagged as failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "espalier/policy/observation.h"
#include "espalier/policy/reward_terms.h"

namespace espalier::policy {

struct RewardOptions {
  RewardMode mode = RewardMode::kShaped;
  double gamma = 0.995;  // of the potential; that of GAE
};

// All on one device.
struct RewardInput {
  at::Tensor accuracy_before;  // [L] f32: of validation, when the action was chosen; any stride
  at::Tensor states_before;    // [L,S,kSlotStateBytes] u8: when the action was chosen
  LaneSigns after;             // of the epoch that followed
  at::Tensor
      contributions;   // [L,S] f32: last measured before that epoch; NaN: never (Observer::contributions())
  at::Tensor op;       // [L] i64: what was chosen; any stride
  at::Tensor is_last;  // [1] bool: the episode has its full length
  at::Tensor failed;   // [L] bool: lost in this step
  at::Tensor frozen;   // [L] bool: lost before it
};

class Reward {
 public:
  Reward(int64_t lanes, int64_t slots, const RewardOptions& options, at::Device device);

  void compute(const RewardInput& input);

  // Of the last compute(), always in the same memory.
  const at::Tensor& reward() const { return reward_; }  // [L] f32
  const at::Tensor& terms() const { return terms_; }    // [L,kNumRewardTerms] f32, by RewardTerm
  const at::Tensor& ended() const { return ended_; }    // [L] bool: last, lost now or before
  const at::Tensor& counts() const { return counts_; }  // [L] bool: not lost before

 private:
  int64_t lanes_;
  int64_t slots_;
  RewardOptions options_;
  at::Device device_;
  at::Tensor reward_;
  at::Tensor terms_;
  at::Tensor ended_;
  at::Tensor counts_;
};

}  // namespace espalier::policy
