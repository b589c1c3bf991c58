#include "espalier/policy/reward.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/policy/packed.h"
#include "tests/policy/tensors.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;
using testing::floats;
using testing::Lanes;
using testing::packed;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Nothing happened in empty slots.
RewardInput quiet(int64_t lanes, int64_t slots) {
  const LaneSigns signs = empty_signs({.lanes = lanes, .space = {.num_slots = slots}});
  return {.accuracy_before = at::zeros({lanes}),
          .states_before = signs.states.clone(),
          .after = signs,
          .contributions = at::full({lanes, slots}, kNaN, at::kFloat),
          .op = at::zeros({lanes}, at::kLong),
          .is_last = bools({0}),
          .failed = at::zeros({lanes}, at::kBool),
          .frozen = at::zeros({lanes}, at::kBool)};
}

at::Tensor sign(const RewardInput& input, LaneSign which) {
  return input.after.lanes.select(1, static_cast<int64_t>(which));
}

at::Tensor term(const Reward& reward, RewardTerm which) {
  return reward.terms().select(1, static_cast<int64_t>(which));
}

at::Tensor close_to(const std::vector<double>& values) {
  return floats(values);
}

#define EXPECT_CLOSE(got, ...) EXPECT_TRUE(at::allclose(got, close_to(__VA_ARGS__), 1e-5, 1e-6)) << got

TEST(Reward, IsThePointsGainedMinusRentMinusTheOp) {
  RewardInput input = quiet(3, 2);
  input.accuracy_before = floats({0.5, 0.5, 0.5});
  sign(input, LaneSign::kValidationAccuracy).copy_(floats({0.52, 0.47, 0.5}));
  sign(input, LaneSign::kAddedParameters).copy_(floats({0, 0.5, 2}));
  input.op = at::tensor({0, 1, 5}, at::kLong);
  Reward reward(3, 2, {}, at::kCPU);
  reward.compute(input);
  EXPECT_CLOSE(term(reward, RewardTerm::kAccuracy), {2, -3, 0});
  EXPECT_CLOSE(term(reward, RewardTerm::kRent), {0, -0.005, -0.02});
  EXPECT_CLOSE(term(reward, RewardTerm::kOp), {0, -0.01, -0.01});
  EXPECT_CLOSE(reward.reward(), {2, -3.015, -0.03});
  EXPECT_FALSE(reward.ended().any().item<bool>());
  EXPECT_TRUE(reward.counts().all().item<bool>());
}

TEST(Reward, AtTheEndCountsKeptSeedsThatHelp) {
  RewardInput input = quiet(1, 5);
  const SlotState kept{.stage = SeedStage::kFossilized, .blueprint = 1, .amplitude = 1, .num_seeds = 1};
  const SlotState held{.stage = SeedStage::kHolding, .blueprint = 1, .amplitude = 1, .num_seeds = 1};
  input.after.states = packed({{kept, kept, kept, held, kept}});
  // Helps; helped when it was last measured; was never measured; is not kept; helped once, and no more.
  input.after.slots.select(2, 1).copy_(floats({1.5, kNaN, kNaN, 3, -0.1}));
  input.contributions.copy_(floats({-1, 0.5, kNaN, 3, 2}));
  sign(input, LaneSign::kValidationAccuracy).fill_(0.8);
  input.accuracy_before.fill_(0.8);
  for (const RewardMode mode : {RewardMode::kShaped, RewardMode::kSparse}) {
    Reward reward(1, 5, {.mode = mode}, at::kCPU);
    reward.compute(input);
    EXPECT_EQ(term(reward, RewardTerm::kEnd).item<float>(), 0);
    RewardInput last = input;
    last.is_last = bools({1});
    reward.compute(last);
    EXPECT_CLOSE(term(reward, RewardTerm::kEnd), {3 * 0.8 + 2 * 2});
    EXPECT_TRUE(reward.ended().item<bool>());
  }
}

TEST(Reward, IsTheEndAloneWhereItIsSparse) {
  RewardInput input = quiet(1, 1);
  input.after.states = packed({{{.stage = SeedStage::kTraining, .blueprint = 1, .num_seeds = 1}}});
  sign(input, LaneSign::kValidationAccuracy).fill_(0.5);
  sign(input, LaneSign::kAddedParameters).fill_(1);
  input.op.fill_(1);
  Reward reward(1, 1, {.mode = RewardMode::kSparse}, at::kCPU);
  reward.compute(input);
  EXPECT_TRUE(at::equal(reward.terms(), at::zeros({1, kNumRewardTerms})));
  input.is_last = bools({1});
  reward.compute(input);
  EXPECT_CLOSE(reward.reward(), {1.5});
}

TEST(Reward, OfALostLaneIsThePenaltyAndThenNothing) {
  for (const RewardMode mode : {RewardMode::kShaped, RewardMode::kSparse}) {
    RewardInput input = quiet(3, 1);
    sign(input, LaneSign::kValidationAccuracy).fill_(kNaN);  // what a lost lane measured
    input.failed = bools({1, 0, 1});
    input.frozen = bools({0, 1, 1});
    Reward reward(3, 1, {.mode = mode}, at::kCPU);
    for (const bool is_last : {false, true}) {
      input.is_last = bools({is_last});
      reward.compute(input);
      EXPECT_TRUE(at::equal(reward.reward(), floats({-1, 0, 0})));
      EXPECT_EQ(term(reward, RewardTerm::kFailure)[0].item<float>(), -1);
      EXPECT_TRUE(at::equal(reward.counts(), bools({1, 0, 0})));
      EXPECT_TRUE(at::equal(reward.ended(), bools({1, 1, 1})));
    }
  }
}

TEST(Reward, PotentialIsThatOfTheTable) {
  const auto phi = [](SlotState state) { return potential_of(state); };
  const std::vector<float> table{0, 0.1f, 0.2f, 0.4f, 0.6f, 1, 0, 0, 0};
  for (int stage = 0; stage < kNumSeedStages; ++stage)
    EXPECT_EQ(phi({.stage = static_cast<SeedStage>(stage)}), table[static_cast<size_t>(stage)]) << stage;
  EXPECT_EQ(phi({.stage = SeedStage::kBlending, .flags = kSlotRemoving}), 0);
  EXPECT_EQ(phi({.stage = static_cast<SeedStage>(200)}), 0);
}

// Steps of random states, from what the first lane starts with.
double discounted_shaping(const Lanes& states, size_t failed_at, double gamma) {
  Reward reward(1, static_cast<int64_t>(states[0].size()), {.gamma = gamma}, at::kCPU);
  double sum = 0, discount = 1;
  for (size_t t = 0; t + 1 < states.size(); ++t, discount *= gamma) {
    RewardInput input = quiet(1, static_cast<int64_t>(states[0].size()));
    input.states_before = packed({states[t]});
    input.after.states = packed({states[t + 1]});
    input.is_last.fill_(t + 2 == states.size());
    input.failed.fill_(t == failed_at);
    input.frozen.fill_(t > failed_at);
    reward.compute(input);
    sum += discount * term(reward, RewardTerm::kPotential).item<double>();
  }
  return sum;
}

TEST(Reward, ShapingAddsUpToMinusTheFirstPotentialWhateverHappens) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Lanes states(12, std::vector<SlotState>(3));
    for (auto& slots : states)
      for (SlotState& state : slots) {
        state.stage = static_cast<SeedStage>(random() % kNumSeedStages);
        state.flags = static_cast<uint8_t>(random() % 4);
      }
    double first = 0;
    for (const SlotState& state : states[0]) first += potential_of(state);
    for (const size_t failed_at : {size_t{100}, size_t{0}, size_t{4}, size_t{10}})
      EXPECT_NEAR(discounted_shaping(states, failed_at, 0.97), -first, 1e-5) << "failed at " << failed_at;
  }
}

TEST(Reward, NamesTheArgumentThatDoesNotFit) {
  Reward reward(2, 3, {}, at::kCPU);
  RewardInput input = quiet(2, 3);
  input.failed = bools({0});
  EXPECT_ERROR(reward.compute(input), c10::Error, "failed", "[1]");
  EXPECT_ERROR(Reward(2, 3, {.gamma = 1.5}, at::kCPU), c10::Error, "gamma", "1.5");
}

TEST(RewardCuda, EqualsTheCpu) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  torch::manual_seed(3);
  for (const int64_t lanes : {1, 31, 32, 33, 131}) {
    for (const bool is_last : {false, true}) {
      RewardInput input = quiet(lanes, 3);
      for (const at::Tensor& states : {input.states_before, input.after.states})
        states.select(2, 0).copy_(at::randint(10, {lanes, 3}, at::kByte));
      input.after.lanes.uniform_();
      input.after.slots.normal_();
      input.accuracy_before.uniform_();
      input.op = at::randint(6, {lanes}, at::kLong);
      input.failed = at::rand({lanes}) < 0.3;
      input.frozen = at::rand({lanes}) < 0.3;
      input.is_last.fill_(is_last);
      Reward cpu(lanes, 3, {}, at::kCPU), gpu(lanes, 3, {}, at::kCUDA);
      cpu.compute(input);
      gpu.compute({.accuracy_before = input.accuracy_before.cuda(),
                   .states_before = input.states_before.cuda(),
                   .after = {input.after.lanes.cuda(), input.after.slots.cuda(), input.after.states.cuda()},
                   .contributions = input.contributions.cuda(),
                   .op = input.op.cuda(),
                   .is_last = input.is_last.cuda(),
                   .failed = input.failed.cuda(),
                   .frozen = input.frozen.cuda()});
      // A multiplication and an addition may be one operation there.
      EXPECT_TRUE(at::allclose(gpu.terms().cpu(), cpu.terms(), 1e-6, 1e-5));
      EXPECT_TRUE(at::allclose(gpu.reward().cpu(), cpu.reward(), 1e-6, 1e-5));
      EXPECT_TRUE(at::equal(gpu.ended().cpu(), cpu.ended()));
      EXPECT_TRUE(at::equal(gpu.counts().cpu(), cpu.counts()));
    }
  }
}

}  // namespace
}  // namespace espalier::policy
