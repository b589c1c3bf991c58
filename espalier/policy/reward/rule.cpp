#include "espalier/policy/reward/rule.h"

#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/zeros.h>

#include "espalier/core/error.h"
#include "espalier/policy/check_tensor.h"

namespace espalier::policy {

Reward::Reward(const std::string& rule, const RewardFrame& frame) : frame_(frame) {
  TORCH_CHECK(frame.lanes >= 1 && frame.slots >= 1, "Reward: lanes, slots: want 1 or more, got ", frame.lanes,
              ", ", frame.slots);
  TORCH_CHECK(frame.gamma >= 0 && frame.gamma <= 1, "Reward: gamma: want 0 to 1, got ", frame.gamma);
  rule_ = rewards().at(rule).make(frame);
  names_ = rule_->terms();
  if (names_.empty()) fail("reward '{}': want a name for at least one term, got none", rule);
  const at::TensorOptions floats = at::TensorOptions(frame.device).dtype(at::kFloat);
  reward_ = at::zeros({frame.lanes}, floats);
  terms_ = at::zeros({frame.lanes, std::ssize(names_)}, floats);
  ended_ = at::zeros({frame.lanes}, floats.dtype(at::kBool));
  counts_ = at::zeros({frame.lanes}, floats.dtype(at::kBool));
}

void Reward::begin() {
  for (const at::Tensor& each : {reward_, terms_, ended_, counts_}) each.zero_();
  rule_->begin();
}

void Reward::compute(const RewardInput& input) {
  const int64_t lanes = frame_.lanes, slots = frame_.slots;
  const TensorChecker check("reward", frame_.device);
  check.shape(input.accuracy_before, "accuracy_before", {lanes}, at::kFloat);
  check.dense(input.states_before, "states_before", {lanes, slots, kSlotStateBytes}, at::kByte);
  check.dense(input.after.lanes, "after.lanes", {lanes, kNumLaneReadings}, at::kFloat);
  check.dense(input.after.slots, "after.slots", {lanes, slots, kNumSlotReadings}, at::kFloat);
  check.dense(input.after.states, "after.states", {lanes, slots, kSlotStateBytes}, at::kByte);
  check.dense(input.contributions, "contributions", {lanes, slots}, at::kFloat);
  check.shape(input.op, "op", {lanes}, at::kLong);
  check.dense(input.is_last, "is_last", {1}, at::kBool);
  check.dense(input.failed, "failed", {lanes}, at::kBool);
  check.dense(input.frozen, "frozen", {lanes}, at::kBool);
  rule_->compute(input, terms_);
  terms_.masked_fill_(input.frozen.unsqueeze(1), 0);
  reward_.zero_();
  for (int64_t term = 0; term < terms_.size(1); ++term) reward_.add_(terms_.select(1, term));
  at::logical_or_out(ended_, input.failed, input.frozen).logical_or_(input.is_last);
  at::logical_not_out(counts_, input.frozen);
}

std::vector<NamedTensor> Reward::state() const {
  std::vector<NamedTensor> state{
      {"reward", reward_}, {"terms", terms_}, {"ended", ended_}, {"counts", counts_}};
  for (NamedTensor& each : rule_->state()) state.push_back({"rule." + each.name, each.tensor});
  return state;
}

}  // namespace espalier::policy
