#include "espalier/policy/action/sampler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "espalier/policy/action/categorical.h"
#include "tests/policy/num_seeds.h"
#include "tests/policy/tensors.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;

constexpr ActionSpace kSpace{.num_slots = 3, .num_blueprints = 4};

struct Lanes {
  MaskRules rules;
  ActionMasks masks;
  ActionSampler sampler;
};

// States in which every op is legal somewhere.
Lanes random_lanes(int64_t lanes) {
  const MaskRules rules(kSpace, at::ones({3}, at::kBool), 3);
  const at::Tensor stage =
      at::tensor({0, 3, 4, 5, 0, 4}, at::kLong).index({at::randint(6, {lanes, 3}, at::kLong)});
  const ActionMasks masks = rules.masks_of({.stage = stage,
                                            .flags = at::randint(2, {lanes, 3}, at::kLong),
                                            .age_steps = at::ones({lanes, 3}, at::kLong),
                                            .num_seeds = testing::num_seeds_of(stage)});
  return {rules, masks, ActionSampler(kSpace, rules.blueprints())};
}

TEST(Sampler, EvaluatesWhatItSampledToTheNumbersItSampledWith) {
  torch::manual_seed(21);
  const Lanes lanes = random_lanes(200);
  const at::Tensor logits = at::randn({200, kSpace.num_choices()}) * 2;
  for (const Choosing choosing : {Choosing::kSample, Choosing::kLikeliest}) {
    const Decision decision =
        lanes.sampler.decide(logits, lanes.masks, at::rand({200, kSpace.num_choices()}), choosing);
    // As a batch of sequences, the way an update asks.
    const Evaluation again =
        lanes.sampler.evaluate(logits.view({20, 10, -1}),
                               {decision.masks.op.view({20, 10, -1}), decision.masks.slot.view({20, 10, -1})},
                               decision.actions.view({20, 10, -1}));
    EXPECT_TRUE(at::equal(again.log_probs.view({200, -1}), decision.evaluation.log_probs));
    EXPECT_TRUE(at::equal(again.entropies.view({200, -1}), decision.evaluation.entropies));
    EXPECT_TRUE(at::equal(again.relevant.view({200, -1}), decision.evaluation.relevant));
  }
}

TEST(Sampler, ChoosesOnlyWhatTheMasksAllow) {
  torch::manual_seed(22);
  const Lanes lanes = random_lanes(500);
  std::array<int, kNumSeedOps> seen{};
  for (int round = 0; round < 4; ++round) {
    const Decision decision = lanes.sampler.decide(at::randn({500, kSpace.num_choices()}), lanes.masks,
                                                   at::rand({500, kSpace.num_choices()}), Choosing::kSample);
    const auto actions = decision.actions.accessor<int64_t, 2>();
    const auto op_legal = lanes.masks.op.accessor<bool, 2>();
    const auto slot_legal = lanes.masks.slot.accessor<bool, 3>();
    for (int64_t lane = 0; lane < 500; ++lane) {
      const int64_t op = actions[lane][0];
      ++seen[op];
      EXPECT_TRUE(op_legal[lane][op]) << lane;
      if (uses_head(static_cast<SeedOp>(op), Head::kSlot)) {
        EXPECT_TRUE(slot_legal[lane][op][actions[lane][1]]) << lane;
      }
      if (uses_head(static_cast<SeedOp>(op), Head::kBlueprint)) {
        EXPECT_NE(actions[lane][2], kNoopBlueprint) << lane;
      }
      for (int head = 0; head < kNumHeads; ++head) {
        EXPECT_GE(actions[lane][head], 0);
        EXPECT_LT(actions[lane][head], kSpace.size(static_cast<Head>(head)));
      }
    }
  }
  for (int op = 0; op < kNumSeedOps; ++op) EXPECT_GT(seen[op], 0) << "op " << op << " was never tried";
}

TEST(Sampler, CountsAHeadOnlyWhereTheOpUsesIt) {
  torch::manual_seed(23);
  const Lanes lanes = random_lanes(300);
  const Decision decision = lanes.sampler.decide(at::randn({300, kSpace.num_choices()}), lanes.masks,
                                                 at::rand({300, kSpace.num_choices()}), Choosing::kSample);
  for (int64_t lane = 0; lane < 300; ++lane) {
    const auto op = static_cast<SeedOp>(decision.actions[lane][0].item<int64_t>());
    for (int head = 0; head < kNumHeads; ++head) {
      const bool uses = uses_head(op, static_cast<Head>(head));
      EXPECT_EQ(decision.evaluation.relevant[lane][head].item<bool>(), uses);
      if (uses) continue;
      EXPECT_EQ(decision.actions[lane][head].item<int64_t>(), 0);
      EXPECT_EQ(decision.evaluation.log_probs[lane][head].item<float>(), 0);
      EXPECT_EQ(decision.evaluation.entropies[lane][head].item<float>(), 0);
    }
  }
}

TEST(Sampler, GivesTheLogProbabilitiesOfASmallCaseByHand) {
  const ActionSpace space{.num_slots = 2, .num_blueprints = 3};
  const ActionSampler sampler(space, bools({0, 1, 1}));
  const at::Tensor logits = at::zeros({1, space.num_choices()});
  logits[0][1] = std::log(3.0);                // op GERMINATE, thrice as likely as WAIT
  logits[0][space.offset(Head::kSlot)] = 100;  // a slot that is not legal
  logits[0][space.offset(Head::kStyle) + 2] = std::log(5.0);
  const ChosenMasks masks{bools({1, 1, 0, 0, 0, 0}).unsqueeze(0), bools({0, 1}).unsqueeze(0)};
  const Evaluation got =
      sampler.evaluate(logits, masks, at::tensor({1, 1, 2, 2, 0, 1, 0, 0}, at::kLong).unsqueeze(0));
  const at::Tensor want = at::tensor({std::log(3.0 / 4), 0.0, std::log(1.0 / 2), std::log(5.0 / 8),
                                      std::log(1.0 / 3), std::log(1.0 / 3), 0.0, 0.0},
                                     at::kFloat);
  EXPECT_TRUE(at::allclose(got.log_probs[0], want, 1e-6, 1e-6)) << got.log_probs;
  EXPECT_NEAR(got.entropies[0][2].item<double>(), 1, 1e-6);  // two blueprints alike
  EXPECT_EQ(got.entropies[0][1].item<double>(), 0);          // one slot
}

TEST(Sampler, SendsNoGradientToHeadsTheOpDoesNotUse) {
  torch::manual_seed(24);
  const Lanes lanes = random_lanes(50);
  at::Tensor logits = at::randn({50, kSpace.num_choices()}).set_requires_grad(true);
  ActionMasks only_wait = lanes.masks;
  only_wait.op = bools({1, 0, 0, 0, 0, 0}).expand({50, 6});
  const Decision decision =
      lanes.sampler.decide(logits, only_wait, at::rand({50, kSpace.num_choices()}), Choosing::kSample);
  const Evaluation& evaluation = decision.evaluation;
  (evaluation.log_probs.sum() + evaluation.entropies.sum()).backward();
  EXPECT_TRUE(logits.grad().isfinite().all().item<bool>());
  EXPECT_EQ(logits.grad().slice(1, kNumSeedOps).abs().max().item<double>(), 0);
}

TEST(Sampler, TakesTheMaximaInDeterministicMode) {
  torch::manual_seed(25);
  const Lanes lanes = random_lanes(100);
  const at::Tensor logits = at::randn({100, kSpace.num_choices()});
  const Decision decision = lanes.sampler.decide(logits, lanes.masks, {}, Choosing::kLikeliest);
  const at::Tensor best = logits.narrow(1, 0, 6).masked_fill(lanes.masks.op.logical_not(), -1e9).argmax(1);
  EXPECT_TRUE(at::equal(decision.actions.select(1, 0), best));
}

TEST(Sampler, WaitsWhereTheStateIsIllegalAndStaysFinite) {
  const MaskRules rules(kSpace, at::ones({3}, at::kBool), 3);
  const at::Tensor stage = at::full({1, 3}, 77, at::kLong), zeros = at::zeros({1, 3}, at::kLong);
  const ActionMasks masks = rules.masks_of(
      {.stage = stage, .flags = zeros, .age_steps = zeros, .num_seeds = at::zeros({1}, at::kLong)});
  const Decision decision = ActionSampler(kSpace, rules.blueprints())
                                .decide(at::randn({1, kSpace.num_choices()}), masks,
                                        at::rand({1, kSpace.num_choices()}), Choosing::kSample);
  EXPECT_TRUE(masks.illegal_state.item<bool>());
  EXPECT_EQ(decision.actions.abs().sum().item<int64_t>(), 0);
  EXPECT_TRUE(decision.evaluation.log_probs.isfinite().all().item<bool>());
}

TEST(Sampler, NamesTheArgumentThatDoesNotFit) {
  torch::manual_seed(26);
  const Lanes lanes = random_lanes(2);
  const at::Tensor logits = at::zeros({2, kSpace.num_choices()});
  EXPECT_ERROR(lanes.sampler.decide(logits, lanes.masks, at::zeros({2, 3}), Choosing::kSample), c10::Error,
               "uniforms", "[2, 3]");
  EXPECT_ERROR(lanes.sampler.evaluate(logits, {lanes.masks.op, lanes.masks.slot.select(1, 0)},
                                      at::zeros({2, 7}, at::kLong)),
               c10::Error, "actions", "[2, 7]");
  EXPECT_ERROR(ActionSampler(kSpace, at::ones({5}, at::kBool)), c10::Error, "blueprints", "[5]");
}

}  // namespace
}  // namespace espalier::policy
