// What a step was worth to every lane, by a rule that a program can replace: its terms side by side, all
// lanes at once.
//
// Kept true: nothing is read on the host, and results stay where they are, so that it can be captured; a
// frozen lane gets 0 and does not count, whatever the rule says; a reward is the sum of its terms, in their
// order. A measurement that is NaN comes out as NaN, unless the lane is flagged as failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "espalier/core/registry.h"
#include "espalier/policy/observe/observation.h"
#include "espalier/policy/reward/terms.h"

namespace espalier::policy {

// All on one device.
struct RewardInput {
  at::Tensor accuracy_before;  // [L] f32: of validation, when the action was chosen; any stride
  at::Tensor states_before;    // [L,S,kSlotStateBytes] u8: when the action was chosen
  RawObservation after;        // the epoch that followed
  at::Tensor contributions;    // [L,S] f32 points: last measured before that epoch; NaN: never
  at::Tensor op;               // [L] i64: what was chosen; any stride
  at::Tensor is_last;          // [1] bool: the episode has its full length
  at::Tensor failed;           // [L] bool: lost in this step
  at::Tensor frozen;           // [L] bool: lost before it
  // Whether a lane that failed goes on as it was when the action was chosen; else its episode is over.
  bool goes_on = false;
};

class RewardRule {
 public:
  virtual ~RewardRule() = default;

  // What its terms are called in logs: K names.
  virtual std::vector<std::string> terms() const = 0;
  // All lanes begin an episode.
  virtual void begin() {}
  // Once per step. terms: [L,K] f32, to be filled. Queues on the device what it takes and reads nothing on
  // the host; what it makes is kept by those tensors that it had from the beginning.
  virtual void compute(const RewardInput& input, const at::Tensor& terms) = 0;
  // What it remembers within an episode, by names of its own: part of checkpoints.
  virtual std::vector<NamedTensor> state() const { return {}; }
};

// Which rule, and what it pays: of a job.
struct RewardConfig {
  std::string rule = "shaped";  // by its name in rewards()
  RewardWeights weights;
};

// What a rule is made for.
struct RewardFrame {
  int64_t lanes = 1;
  int64_t slots = 1;
  RewardWeights weights;
  double gamma = 0.995;  // the potential's; that of GAE
  at::Device device = at::kCPU;
};

// shaped, sparse, contribution and escrow come with the library (built_in.h). A program adds its own
// (examples/own_reward.cpp).
struct RewardKind {
  std::string name;
  std::string summary = {};  // for --help: what it pays for, in a few words
  std::function<std::unique_ptr<RewardRule>(const RewardFrame&)> make;
};
Registry<RewardKind>& rewards();

// A rule at work.
class Reward {
 public:
  Reward(const std::string& rule, const RewardFrame& frame);

  // All lanes begin an episode: nothing was worth anything yet.
  void begin();
  void compute(const RewardInput& input);

  // What the last compute() gave, always in the same memory.
  const at::Tensor& reward() const { return reward_; }  // [L] f32
  const at::Tensor& terms() const { return terms_; }    // [L,K] f32
  const at::Tensor& ended() const { return ended_; }    // [L] bool: last, lost now or before
  const at::Tensor& counts() const { return counts_; }  // [L] bool: not lost before

  const std::vector<std::string>& term_names() const { return names_; }  // [K]
  std::vector<NamedTensor> state() const;                                // an episode's

 private:
  RewardFrame frame_;
  std::unique_ptr<RewardRule> rule_;
  std::vector<std::string> names_;
  at::Tensor reward_;
  at::Tensor terms_;
  at::Tensor ended_;
  at::Tensor counts_;
};

}  // namespace espalier::policy
