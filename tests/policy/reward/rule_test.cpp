#include "espalier/policy/reward/rule.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <random>

#include "espalier/core/error.h"
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
  const RawObservation readings = empty_raw_observation({.lanes = lanes, .space = {.num_slots = slots}});
  return {.accuracy_before = at::zeros({lanes}),
          .states_before = readings.states.clone(),
          .after = readings,
          .contributions = at::full({lanes, slots}, kNaN, at::kFloat),
          .op = at::zeros({lanes}, at::kLong),
          .is_last = bools({0}),
          .failed = at::zeros({lanes}, at::kBool),
          .frozen = at::zeros({lanes}, at::kBool)};
}

at::Tensor reading(const RewardInput& input, LaneReading which) {
  return input.after.lanes.select(1, static_cast<int64_t>(which));
}

at::Tensor term(const Reward& reward, RewardTerm which) {
  return reward.terms().select(1, static_cast<int64_t>(which));
}

at::Tensor close_to(const std::vector<double>& values) {
  return floats(values);
}

Reward reward_by(const std::string& rule, int64_t lanes, int64_t slots, const RewardWeights& weights = {}) {
  return Reward(rule, {.lanes = lanes, .slots = slots, .weights = weights});
}

#define EXPECT_CLOSE(got, ...) EXPECT_TRUE(at::allclose(got, close_to(__VA_ARGS__), 1e-5, 1e-6)) << got

TEST(Reward, IsThePointsGainedMinusRentMinusTheOp) {
  RewardInput input = quiet(3, 2);
  input.accuracy_before = floats({0.5, 0.5, 0.5});
  reading(input, LaneReading::kValidationAccuracy).copy_(floats({0.52, 0.47, 0.5}));
  reading(input, LaneReading::kAddedParameters).copy_(floats({0, 0.5, 2}));
  input.op = at::tensor({0, 1, 5}, at::kLong);
  Reward reward = reward_by("shaped", 3, 2);
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
  reading(input, LaneReading::kValidationAccuracy).fill_(0.8);
  input.accuracy_before.fill_(0.8);
  for (const char* rule : {"shaped", "sparse"}) {
    Reward reward = reward_by(rule, 1, 5);
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
  reading(input, LaneReading::kValidationAccuracy).fill_(0.5);
  reading(input, LaneReading::kAddedParameters).fill_(1);
  input.op.fill_(1);
  Reward reward = reward_by("sparse", 1, 1);
  reward.compute(input);
  EXPECT_TRUE(at::equal(reward.terms(), at::zeros({1, num_terms(RewardMode::kSparse)})));
  input.is_last = bools({1});
  reward.compute(input);
  EXPECT_CLOSE(reward.reward(), {1.5});
}

TEST(Reward, OfALostLaneIsThePenaltyAndThenNothing) {
  for (const char* rule : {"shaped", "sparse"}) {
    RewardInput input = quiet(3, 1);
    reading(input, LaneReading::kValidationAccuracy).fill_(kNaN);  // what a lost lane measured
    input.failed = bools({1, 0, 1});
    input.frozen = bools({0, 1, 1});
    Reward reward = reward_by(rule, 3, 1);
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
  Reward reward("shaped", {.slots = std::ssize(states[0]), .gamma = gamma});
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

TEST(Reward, IsWhatItsWeightsSay) {
  RewardInput input = quiet(2, 1);
  const SlotState kept{.stage = SeedStage::kFossilized, .blueprint = 1, .amplitude = 1, .num_seeds = 1};
  const SlotState training{.stage = SeedStage::kTraining, .blueprint = 1, .num_seeds = 1};
  input.states_before = packed({{training}, {training}});
  input.after.states = packed({{kept}, {kept}});
  input.after.slots.select(2, 1).fill_(1);
  input.accuracy_before.fill_(0.25);
  reading(input, LaneReading::kValidationAccuracy).fill_(0.5);
  reading(input, LaneReading::kAddedParameters).fill_(2);
  input.op.fill_(4);
  input.failed = bools({0, 1});
  input.is_last = bools({1});
  Reward reward = reward_by("shaped", 2, 1,
                            {.accuracy = 2,
                             .rent = 0.5,
                             .op = 0.25,
                             .potential = 10,
                             .end_accuracy = 4,
                             .end_seed = 8,
                             .failure = 16});
  reward.compute(input);
  // 2 x 25 points; half of twice the host's parameters; one op; minus 10 x 0.2; 4 x 0.5 + 8.
  EXPECT_CLOSE(reward.terms().flatten(), {50, -1, -0.25, -2, 10, 0, 0, 0, -0.25, -2, 0, -16});
}

// One seed's life, in lane 0 of two: not felt, helps, helps less, hurts, is not measured, kept; in lane 1 it
// is removed in the fifth step.
struct Life {
  RewardInput input = quiet(2, 2);

  void step(SeedStage stage, double points, SeedStage other) {
    const SlotState seed{.stage = stage, .blueprint = 1, .amplitude = 1, .num_seeds = 1};
    const SlotState theirs{.stage = other, .blueprint = 1, .amplitude = 1, .num_seeds = 1};
    input.after.states = packed({{SlotState{}, seed}, {theirs, SlotState{}}});
    input.after.slots.fill_(kNaN);
    input.after.slots[0][1][1] = points;
    input.after.slots[1][0][1] = holds_seed(other) ? points : kNaN;
  }
};

TEST(Reward, PaysASeedByWhatItContributesStepByStep) {
  Reward reward = reward_by("contribution", 2, 2, {.rent = 0.5, .contribution = 0.1});
  EXPECT_EQ(reward.term_names().back(), "contribution");
  Life life;
  reading(life.input, LaneReading::kAddedParameters).fill_(0.2);
  reading(life.input, LaneReading::kValidationAccuracy).fill_(0.9);  // risen: not paid by itself
  life.input.op.fill_(1);
  using enum SeedStage;
  struct Step {
    SeedStage stage;
    double points;
    SeedStage other;
    double first, second;  // contributions, in points
  };
  for (const Step& step : std::vector<Step>{{kTraining, kNaN, kTraining, 0, 0},
                                            {kBlending, 4, kBlending, 4, 4},
                                            {kHolding, 2, kHolding, 2, 2},
                                            {kHolding, -3, kHolding, -3, -3},
                                            {kHolding, kNaN, kPruned, -3, 0},  // the last one counts on
                                            {kHolding, 5, kEmbargoed, 5, 0},
                                            // What is measured of a kept one depends on other lanes.
                                            {kFossilized, -50, kDormant, 5, 0}}) {
    life.step(step.stage, step.points, step.other);
    reward.compute(life.input);
    EXPECT_CLOSE(term(reward, RewardTerm::kContribution), {0.1 * step.first, 0.1 * step.second});
    EXPECT_CLOSE(term(reward, RewardTerm::kRent), {-0.1, -0.1});
    EXPECT_CLOSE(term(reward, RewardTerm::kAccuracy), {0, 0});
    EXPECT_CLOSE(reward.reward(), {0.1 * step.first - 0.11, 0.1 * step.second - 0.11});
  }
  life.input.failed = bools({1, 0});
  reward.compute(life.input);
  EXPECT_CLOSE(term(reward, RewardTerm::kContribution), {0, 0});
  reward.begin();
  life.input.failed.zero_();
  life.step(kFossilized, kNaN, kDormant);
  reward.compute(life.input);
  EXPECT_CLOSE(term(reward, RewardTerm::kContribution), {0, 0});
}

TEST(Reward, TakesBackWhatWasPaidForAContributionThatDidNotLast) {
  Reward reward = reward_by("escrow", 2, 2, {.rent = 0, .escrow = 2});
  Life life;
  using enum SeedStage;
  struct Step {
    SeedStage stage;
    double points;
    SeedStage other;
    double paid[2], taken[2];
  };
  for (const Step& step :
       std::vector<Step>{{kTraining, kNaN, kTraining, {0, 0}, {0, 0}},
                         {kBlending, 4, kBlending, {8, 8}, {0, 0}},
                         {kHolding, 1.5, kHolding, {0, 0}, {-5, -5}},
                         {kHolding, 3, kHolding, {3, 3}, {0, 0}},
                         {kHolding, -3, kPruned, {0, 0}, {-6, -6}},  // no less than nothing is held
                         {kHolding, 5, kEmbargoed, {10, 0}, {0, 0}},
                         {kHolding, kNaN, kDormant, {0, 0}, {0, 0}},
                         {kFossilized, -50, kDormant, {0, 0}, {0, 0}}}) {
    life.step(step.stage, step.points, step.other);
    reward.compute(life.input);
    EXPECT_CLOSE(term(reward, RewardTerm::kContribution), {step.paid[0], step.paid[1]});
    EXPECT_CLOSE(term(reward, RewardTerm::kEscrow), {step.taken[0], step.taken[1]});
  }
  // A network that is lost has nothing that lasts.
  life.input.failed = bools({1, 0});
  reward.compute(life.input);
  EXPECT_CLOSE(term(reward, RewardTerm::kEscrow), {-10, 0});
  EXPECT_CLOSE(reward.reward(), {-11, 0});
}

TEST(Reward, NamesTheArgumentThatDoesNotFit) {
  Reward reward = reward_by("shaped", 2, 3);
  RewardInput input = quiet(2, 3);
  input.failed = bools({0});
  EXPECT_ERROR(reward.compute(input), c10::Error, "failed", "[1]");
  EXPECT_ERROR(Reward("shaped", {.gamma = 1.5}), c10::Error, "gamma", "1.5");
  EXPECT_ERROR(Reward("shapely", {}), UsageError, "reward", "shaped, sparse, contribution, escrow",
               "'shapely'");
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
      input.goes_on = lanes % 2 == 0;
      for (const std::string_view rule : rewards().names()) {
        Reward cpu(std::string(rule), {.lanes = lanes, .slots = 3});
        Reward gpu(std::string(rule), {.lanes = lanes, .slots = 3, .device = at::kCUDA});
        for (const bool again : {false, true}) {  // what is paid depends on what was
          if (again) input.after.slots.normal_();
          cpu.compute(input);
          gpu.compute(
              {.accuracy_before = input.accuracy_before.cuda(),
               .states_before = input.states_before.cuda(),
               .after = {input.after.lanes.cuda(), input.after.slots.cuda(), input.after.states.cuda()},
               .contributions = input.contributions.cuda(),
               .op = input.op.cuda(),
               .is_last = input.is_last.cuda(),
               .failed = input.failed.cuda(),
               .frozen = input.frozen.cuda(),
               .goes_on = input.goes_on});
          // A multiplication and an addition may be one operation there.
          EXPECT_TRUE(at::allclose(gpu.terms().cpu(), cpu.terms(), 1e-6, 1e-5));
          EXPECT_TRUE(at::allclose(gpu.reward().cpu(), cpu.reward(), 1e-6, 1e-5));
          EXPECT_TRUE(at::equal(gpu.ended().cpu(), cpu.ended()));
          EXPECT_TRUE(at::equal(gpu.counts().cpu(), cpu.counts()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace espalier::policy
