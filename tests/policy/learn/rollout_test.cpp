#include "espalier/policy/learn/rollout.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/message.h"

namespace espalier::policy {
namespace {

NetworkOptions options() {
  return {.space = {.num_slots = 2, .num_blueprints = 3}, .num_features = 4, .hidden_size = 5};
}

StepDecision random_decision(int64_t lanes) {
  return {.seen = {at::randn({lanes, 4}), at::randint(3, {lanes, 2}, at::kLong)},
          .state = {at::randn({lanes, 5}), at::randn({lanes, 5})},
          .clears = at::rand({lanes}) < 0.5,
          .decision = {.actions = at::randint(3, {lanes, 8}, at::kLong),
                       .masks = {at::rand({lanes, 6}) < 0.5, at::rand({lanes, 2}) < 0.5},
                       .evaluation = {.log_probs = at::randn({lanes, 8})}},
          .value = at::randn({lanes})};
}

StepOutcome random_outcome(int64_t lanes) {
  return {.reward = at::randn({lanes}),
          .ended = at::rand({lanes}) < 0.5,
          .truncated = at::rand({lanes}) < 0.5,
          .bootstrap = at::randn({lanes}),
          .counts = at::rand({lanes}) < 0.5};
}

TEST(Rollout, KeepsEveryFieldOfEveryStepWhereItBelongs) {
  torch::manual_seed(31);
  Rollout rollout(options(), {.lanes = 3, .steps = 4});
  const void* address = rollout.log_probs.data_ptr();
  for (int round = 0; round < 2; ++round) {  // the second over the first, in the same memory
    rollout.begin();
    std::vector<StepDecision> decisions;
    std::vector<StepOutcome> outcomes;
    for (int t = 0; t < 4; ++t) {
      decisions.push_back(random_decision(3));
      outcomes.push_back(random_outcome(3));
      rollout.store(decisions[t]);
      rollout.store(outcomes[t]);
    }
    for (int t = 0; t < 4; ++t) {
      const StepDecision& step = decisions[t];
      EXPECT_TRUE(at::equal(rollout.seen.features.select(1, t), step.seen.features));
      EXPECT_TRUE(at::equal(rollout.seen.blueprints.select(1, t), step.seen.blueprints));
      EXPECT_TRUE(at::equal(rollout.state.hidden.select(1, t), step.state.hidden));
      EXPECT_TRUE(at::equal(rollout.state.cell.select(1, t), step.state.cell));
      EXPECT_TRUE(at::equal(rollout.clears.select(1, t), step.clears));
      EXPECT_TRUE(at::equal(rollout.actions.select(1, t), step.decision.actions));
      EXPECT_TRUE(at::equal(rollout.masks.op.select(1, t), step.decision.masks.op));
      EXPECT_TRUE(at::equal(rollout.masks.slot.select(1, t), step.decision.masks.slot));
      EXPECT_TRUE(at::equal(rollout.log_probs.select(1, t), step.decision.evaluation.log_probs));
      EXPECT_TRUE(at::equal(rollout.values.select(1, t), step.value));
      EXPECT_TRUE(at::equal(rollout.rewards.select(1, t), outcomes[t].reward));
      EXPECT_TRUE(at::equal(rollout.ended.select(1, t), outcomes[t].ended));
      EXPECT_TRUE(at::equal(rollout.truncated.select(1, t), outcomes[t].truncated));
      EXPECT_TRUE(at::equal(rollout.bootstrap.select(1, t), outcomes[t].bootstrap));
      EXPECT_TRUE(at::equal(rollout.counts.select(1, t), outcomes[t].counts));
    }
  }
  EXPECT_EQ(rollout.log_probs.data_ptr(), address);
}

TEST(Rollout, KeepsNoGraphOfTheNetworkThatActed) {
  Rollout rollout(options(), {.lanes = 1, .steps = 1});
  StepDecision step = random_decision(1);
  step.value.set_requires_grad(true);
  rollout.store(step);
  EXPECT_FALSE(rollout.values.requires_grad());
}

TEST(Rollout, RefusesToBeEmpty) {
  EXPECT_ERROR(Rollout(options(), {.lanes = 3, .steps = 0}), c10::Error, "steps", "0");
}

}  // namespace
}  // namespace espalier::policy
