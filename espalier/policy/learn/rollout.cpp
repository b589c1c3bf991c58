#include "espalier/policy/learn/rollout.h"

#include <ATen/ATen.h>

namespace espalier::policy {

Rollout::Rollout(const NetworkOptions& network, const RolloutShape& shape) : shape_(shape) {
  TORCH_CHECK(shape.lanes >= 1 && shape.steps >= 1, "Rollout: lanes, steps: want 1 or more, got ",
              shape.lanes, ", ", shape.steps);
  const at::TensorOptions floats = network.tensors, flags = floats.dtype(at::kBool),
                          numbers = floats.dtype(at::kLong);
  const auto zeros = [&](std::vector<int64_t> sizes, const at::TensorOptions& options) {
    sizes.insert(sizes.begin(), {shape.lanes, shape.steps});
    return at::zeros(sizes, options);
  };
  const int64_t slots = network.space.num_slots;
  seen = {.features = zeros({network.num_features}, floats), .blueprints = zeros({slots}, numbers)};
  state = {.hidden = zeros({network.hidden_size}, floats), .cell = zeros({network.hidden_size}, floats)};
  clears = zeros({}, flags);
  actions = zeros({kNumHeads}, numbers);
  masks = {.op = zeros({kNumSeedOps}, flags), .slot = zeros({slots}, flags)};
  log_probs = zeros({kNumHeads}, floats);
  values = zeros({}, floats);
  rewards = zeros({}, floats);
  ended = zeros({}, flags);
  truncated = zeros({}, flags);
  bootstrap = zeros({}, floats);
  counts = zeros({}, flags);
  place_ = at::zeros({1}, numbers);
}

void Rollout::begin() {
  place_.zero_();
}

std::vector<NamedTensor> Rollout::named_tensors() const {
  return {{"rollout.features", seen.features}, {"rollout.blueprints", seen.blueprints},
          {"rollout.hidden", state.hidden},    {"rollout.cell", state.cell},
          {"rollout.clears", clears},          {"rollout.actions", actions},
          {"rollout.op_masks", masks.op},      {"rollout.slot_masks", masks.slot},
          {"rollout.log_probs", log_probs},    {"rollout.values", values},
          {"rollout.rewards", rewards},        {"rollout.ended", ended},
          {"rollout.truncated", truncated},    {"rollout.bootstrap", bootstrap},
          {"rollout.counts", counts},          {"rollout.place", place_}};
}

void Rollout::put(const at::Tensor& buffer, const at::Tensor& step) {
  buffer.index_copy_(1, place_, step.detach().unsqueeze(1));
}

void Rollout::store(const StepDecision& step) {
  put(seen.features, step.seen.features);
  put(seen.blueprints, step.seen.blueprints);
  put(state.hidden, step.state.hidden);
  put(state.cell, step.state.cell);
  put(clears, step.clears);
  put(actions, step.decision.actions);
  put(masks.op, step.decision.masks.op);
  put(masks.slot, step.decision.masks.slot);
  put(log_probs, step.decision.evaluation.log_probs);
  put(values, step.value);
}

void Rollout::store(const StepOutcome& outcome) {
  put(rewards, outcome.reward);
  put(ended, outcome.ended);
  put(truncated, outcome.truncated);
  put(bootstrap, outcome.bootstrap);
  put(counts, outcome.counts);
  place_.add_(1);
}

}  // namespace espalier::policy
