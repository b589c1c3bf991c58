#include "espalier/policy/acting.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "espalier/policy/action/uniforms.h"
#include "espalier/policy/reward/account.h"
#include "tests/policy/packed.h"
#include "tests/policy/tensors.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#if ESPALIER_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace espalier::policy {
namespace {

using testing::bools;
using testing::packed;

constexpr ActionSpace kSpace{.num_slots = 2, .num_blueprints = 4};
constexpr int64_t kLanes = 5, kSteps = 6;

// A policy, and epochs that tell random things of slots in random stages.
struct Stage {
  explicit Stage(at::Device device = at::kCPU)
      : device(device),
        rules(kSpace, at::ones({2}, at::TensorOptions(device).dtype(at::kBool)), 2),
        sampler(kSpace, rules.blueprints()),
        network({.space = kSpace,
                 .num_features = num_features(2),
                 .encoder_size = 16,
                 .hidden_size = 8,
                 .seed = 3,
                 .tensors = at::TensorOptions(device).dtype(at::kFloat)}),
        ppo(network, sampler, {}),
        acting(network, rules, sampler, ppo.values(), {.lanes = kLanes, .episode_length = kSteps, .seed = 7}),
        readings(empty_raw_observation({.lanes = kLanes, .space = kSpace, .device = device})),
        lost(at::zeros({kLanes}, at::TensorOptions(device).dtype(at::kBool))),
        account("shaped", {.lanes = kLanes, .slots = 2, .device = device}) {}

  void begin(int64_t round, ActingMode mode) {
    acting.begin(round, mode);
    account.begin();
    lost.zero_();
  }

  void epoch(int64_t step) {
    at::Generator random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + step));
    const auto draw = [&](at::IntArrayRef sizes) { return at::rand(sizes, random, at::kFloat); };
    readings.lanes.copy_(draw({kLanes, kNumLaneReadings}));
    readings.slots.copy_(draw({kLanes, 2, kNumSlotReadings}));
    testing::Lanes states(kLanes, std::vector<SlotState>(2));
    const at::Tensor stages = (draw({kLanes, 2}) * 6).to(at::kLong);
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (int64_t slot = 0; slot < 2; ++slot) {
        SlotState& state = states[static_cast<size_t>(lane)][static_cast<size_t>(slot)];
        state.stage = static_cast<SeedStage>(stages[lane][slot].item<int64_t>());
        if (holds_seed(state.stage)) state.blueprint = 1, state.age_steps = 1, state.num_seeds = 1;
      }
    readings.states.copy_(packed(states));
  }

  // A whole episode. Returns the actions of all steps: [T,L,8] on the CPU.
  at::Tensor play(int64_t round, ActingMode mode) {
    begin(round, mode);
    std::vector<at::Tensor> actions;
    for (int64_t step = 0; step <= kSteps; ++step) {
      epoch(step);
      this->step(step);
      if (step < kSteps) actions.push_back(acting.actions().cpu().clone());
    }
    return at::stack(actions);
  }

  // What the last epoch told is given its reward, and acted upon.
  void step(int64_t step) {
    account_for(step);
    if (step > 0) finish_step();
    if (step < kSteps) act();
  }
  void account_for(int64_t step) {
    account.add(readings, acting.actions().select(1, 0), lost,
                step == 0        ? EpisodePart::kFirst
                : step == kSteps ? EpisodePart::kLast
                                 : EpisodePart::kMiddle);
  }
  void finish_step() { acting.finish_step(account.reward()); }
  void act() { acting.act(readings, account.frozen()); }

  at::Device device;
  MaskRules rules;
  ActionSampler sampler;
  PolicyNetwork network;
  Ppo ppo;
  Acting acting;
  RawObservation readings;
  at::Tensor lost;  // [L] bool
  RewardAccount account;
};

TEST(Acting, StoresStepsThatEvaluateToWhatTheyWereChosenWith) {
  Stage stage;
  for (int64_t round = 0; round < 2; ++round) {  // the second with a normaliser that knows something
    const at::Tensor actions = stage.play(round, ActingMode::kLearning);
    const Rollout& rollout = stage.acting.rollout();
    EXPECT_TRUE(at::equal(rollout.actions, actions.transpose(0, 1)));
    const c10::NoGradGuard no_grad;
    const NetworkOutput out = stage.network.sequence(
        rollout.seen, {rollout.state.hidden.select(1, 0), rollout.state.cell.select(1, 0)}, rollout.clears);
    const Evaluation again = stage.sampler.evaluate(out.logits, rollout.masks, rollout.actions);
    EXPECT_TRUE(at::allclose(again.log_probs, rollout.log_probs, 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(stage.ppo.values().denormalise(out.value), rollout.values, 1e-4, 1e-5));
    EXPECT_TRUE(at::equal(rollout.ended, at::arange(kSteps).eq(kSteps - 1).expand({kLanes, kSteps})));
    EXPECT_TRUE(at::equal(rollout.clears, at::arange(kSteps).eq(0).expand({kLanes, kSteps})));
    EXPECT_TRUE(rollout.counts.all().item<bool>());
  }
}

TEST(Acting, RewardsAnActionWithWhatTheNextEpochTells) {
  Stage stage;
  stage.play(0, ActingMode::kLearning);
  const Rollout& rollout = stage.acting.rollout();
  const auto told_after = [&](int64_t step) {
    stage.epoch(step);
    return RawObservation{stage.readings.lanes.clone(), stage.readings.slots.clone(),
                          stage.readings.states.clone()};
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    const RawObservation before = told_after(step), after = told_after(step + 1);
    Reward reward("shaped", {.lanes = kLanes, .slots = 2});
    reward.compute(
        {.accuracy_before = before.lanes.select(1, static_cast<int64_t>(LaneReading::kValidationAccuracy)),
         .states_before = before.states,
         .after = after,
         .contributions = before.slots.select(2, 1).clone(at::MemoryFormat::Contiguous),
         .op = rollout.actions.select(1, step).select(1, 0),
         .is_last = bools({step == kSteps - 1}),
         .failed = at::zeros({kLanes}, at::kBool),
         .frozen = at::zeros({kLanes}, at::kBool)});
    EXPECT_TRUE(at::allclose(rollout.rewards.select(1, step), reward.reward(), 1e-5, 1e-5)) << step;
  }
}

TEST(Acting, ChoosesNothingButWaitInALostLaneUntilTheRoundEnds) {
  Stage stage;
  stage.begin(0, ActingMode::kLearning);
  for (int64_t step = 0; step <= kSteps; ++step) {
    stage.epoch(step);
    stage.lost.copy_(bools({0, 0, step == 2, 0, 0}));
    stage.step(step);
  }
  const Rollout& rollout = stage.acting.rollout();
  EXPECT_TRUE(at::equal(stage.account.frozen(), bools({0, 0, 1, 0, 0})));
  EXPECT_EQ(rollout.actions[2].slice(0, 2).abs().sum().item<int64_t>(), 0);
  EXPECT_EQ(rollout.masks.op[2].slice(0, 2).sum().item<int64_t>(), kSteps - 2);
  EXPECT_TRUE(at::equal(rollout.counts[2], bools({1, 1, 0, 0, 0, 0})));
  EXPECT_TRUE(at::equal(rollout.ended[2], bools({0, 1, 1, 1, 1, 1})));
  EXPECT_EQ(rollout.rewards[2].slice(0, 2).abs().sum().item<float>(), 0);
  EXPECT_TRUE(rollout.counts[1].all().item<bool>());
  stage.begin(1, ActingMode::kLearning);
  EXPECT_FALSE(stage.account.frozen().any().item<bool>());
}

TEST(Acting, DependsOnSeedAndRoundAloneAndKeepsNothingFromEvaluating) {
  Stage first, second;
  const at::Tensor round0 = first.play(0, ActingMode::kLearning);
  EXPECT_TRUE(at::equal(second.play(0, ActingMode::kLearning), round0));
  const std::vector<NamedTensor> state = second.acting.state();
  std::vector<at::Tensor> saved;
  for (const NamedTensor& each : state) saved.push_back(each.tensor.clone());
  const at::Tensor stored = second.acting.rollout().seen.features.clone();
  const at::Tensor sampled = second.play(0, ActingMode::kSampling);
  EXPECT_FALSE(at::equal(second.play(5, ActingMode::kSampling), sampled));
  const at::Tensor likeliest = second.play(0, ActingMode::kLikeliest);
  EXPECT_TRUE(at::equal(second.play(5, ActingMode::kLikeliest), likeliest)) << "nothing is drawn";
  for (size_t i = 0; i + 1 < state.size(); ++i)  // the last is the round
    EXPECT_TRUE(at::equal(state[i].tensor, saved[i])) << state[i].name;
  EXPECT_TRUE(at::equal(second.acting.rollout().seen.features, stored));
  EXPECT_TRUE(at::equal(second.play(1, ActingMode::kLearning), first.play(1, ActingMode::kLearning)));
}

TEST(Acting, FlagsTheLaneOfAStateThatNoLifecycleMakes) {
  Stage stage;
  stage.begin(0, ActingMode::kSampling);
  stage.epoch(0);
  stage.readings.states[3][1][0] = 77;
  stage.act();
  EXPECT_TRUE(at::equal(stage.acting.illegal(), bools({0, 0, 0, 1, 0})));
  stage.epoch(1);
  stage.act();
  EXPECT_FALSE(stage.acting.illegal().any().item<bool>());
}

TEST(Acting, RefusesANetworkOfAnotherObservation) {
  Stage stage;
  const PolicyNetwork other({.space = kSpace, .num_features = 5, .encoder_size = 4, .hidden_size = 4});
  EXPECT_ERROR(Acting(other, stage.rules, stage.sampler, stage.ppo.values(), {}), c10::Error, "num_features",
               "73", "5");
}

#if ESPALIER_WITH_CUDA
// What a step shows outside.
std::vector<at::Tensor> shown(const Stage& stage) {
  return {stage.acting.actions().cpu(), stage.acting.illegal().cpu(), stage.account.reward().terms().cpu(),
          stage.account.reward().ended().cpu(), stage.account.frozen().cpu()};
}

TEST(ActingCuda, ReplaysWhatItDoesEagerly) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const ActingMode mode : {ActingMode::kLearning, ActingMode::kSampling, ActingMode::kLikeliest}) {
    Stage eager(at::Device(at::kCUDA, 0)), replayed(at::Device(at::kCUDA, 0));
    const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
    eager.play(0, mode);  // warms up; and gives the normaliser something to know
    replayed.play(0, mode);
    at::cuda::CUDAGraph act, settle;
    replayed.begin(1, mode);
    eager.begin(1, mode);
    act.capture_begin();
    replayed.act();
    act.capture_end();
    settle.capture_begin();
    replayed.account_for(1);
    replayed.finish_step();
    settle.capture_end();
    for (int64_t round = 1; round < 3; ++round) {
      eager.begin(round, mode);
      replayed.begin(round, mode);
      for (int64_t step = 0; step < kSteps; ++step) {
        for (Stage* stage : {&eager, &replayed}) {
          stage->epoch(step);
          stage->lost.copy_(bools({0, step == 3, 0, 0, 0}));
        }
        eager.step(step);
        if (step == 0)
          replayed.account_for(0);
        else
          settle.replay();
        act.replay();
        const std::vector<at::Tensor> want = shown(eager), got = shown(replayed);
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_TRUE(at::equal(got[i], want[i])) << "round " << round << " step " << step << ": " << i;
      }
      EXPECT_TRUE(at::equal(replayed.acting.rollout().seen.features, eager.acting.rollout().seen.features));
      EXPECT_TRUE(at::equal(replayed.acting.rollout().log_probs, eager.acting.rollout().log_probs));
      EXPECT_TRUE(at::equal(replayed.acting.rollout().rewards, eager.acting.rollout().rewards));
    }
  }
}

TEST(ActingCuda, RewardsAndMasksAreTheCpus) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  Stage cpu, gpu(at::Device(at::kCUDA, 0));
  cpu.play(0, ActingMode::kLearning);
  gpu.play(0, ActingMode::kLearning);
  const Rollout &want = cpu.acting.rollout(), &got = gpu.acting.rollout();
  EXPECT_TRUE(at::allclose(got.seen.features.cpu(), want.seen.features, 1e-5, 1e-5));
  EXPECT_TRUE(at::equal(got.masks.op.cpu(), want.masks.op));
  // The first step's numbers differ by rounding alone; a choice between near equals may flip later on.
  EXPECT_TRUE(at::allclose(got.values.cpu().select(1, 0), want.values.select(1, 0), 1e-4, 1e-4));
}
#endif  // ESPALIER_WITH_CUDA

}  // namespace
}  // namespace espalier::policy
