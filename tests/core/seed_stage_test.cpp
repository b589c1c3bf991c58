#include "espalier/core/seed_stage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace espalier {
namespace {

using enum SeedStage;

const std::vector<SeedStage> kStages{kDormant,    kGerminated, kTraining,  kBlending, kHolding,
                                     kFossilized, kPruned,     kEmbargoed, kResetting};

// A sound state in the stage, not mid-ramp.
SlotState sound(SeedStage stage) {
  SlotState state{.stage = stage, .num_seeds = 1};
  if (!holds_seed(stage)) return state;
  state.blueprint = 3;
  state.target = 0.7f;
  state.ramp_steps = 5;
  if (stage != kGerminated) state.age_steps = 9;
  if (stage >= kBlending) {
    state.amplitude = 0.7f;
    state.ramp_done = 5;
  }
  return state;
}

SlotState ramping() {
  SlotState state = sound(kBlending);
  state.flags = kSlotRamping;
  state.amplitude = 0.3f;
  state.ramp_done = 2;
  return state;
}

SlotState removing() {
  SlotState state = ramping();
  state.flags |= kSlotRemoving;
  state.ramp_start = 0.7f;
  state.target = 0;
  return state;
}

// In the last step of its removal.
SlotState arrived_at_zero() {
  SlotState state = removing();
  state.flags = kSlotRemoving | kSlotMoving;
  state.amplitude = 0;
  state.ramp_done = state.ramp_steps;
  return state;
}

// Saved files and the policy's inputs hold these numbers.
TEST(SeedStage, HasTheseValuesForEver) {
  for (size_t i = 0; i < kStages.size(); ++i) EXPECT_EQ(static_cast<size_t>(kStages[i]), i);
  EXPECT_EQ(kStages.size(), static_cast<size_t>(kNumSeedStages));
  EXPECT_EQ(static_cast<int>(SeedOp::kWait), 0);
  EXPECT_EQ(static_cast<int>(SeedOp::kGerminate), 1);
  EXPECT_EQ(static_cast<int>(SeedOp::kSetAmplitudeTarget), 2);
  EXPECT_EQ(static_cast<int>(SeedOp::kPrune), 3);
  EXPECT_EQ(static_cast<int>(SeedOp::kFossilize), 4);
  EXPECT_EQ(static_cast<int>(SeedOp::kAdvance), kNumSeedOps - 1);
  EXPECT_EQ(static_cast<int>(BlendOperator::kAdd), 0);
  EXPECT_EQ(static_cast<int>(BlendOperator::kMultiply), 1);
  EXPECT_EQ(static_cast<int>(BlendOperator::kGate), kNumBlendOperators - 1);
  EXPECT_EQ(static_cast<int>(BlendCurve::kLinear), 0);
  EXPECT_EQ(static_cast<int>(BlendCurve::kCosine), 1);
  EXPECT_EQ(static_cast<int>(BlendCurve::kSigmoid6), 2);
  EXPECT_EQ(static_cast<int>(BlendCurve::kSigmoid12), 3);
  EXPECT_EQ(static_cast<int>(BlendCurve::kSigmoid24), kNumBlendCurves - 1);
}

TEST(SeedStage, PacksASlotInTheseBytes) {
  EXPECT_EQ(sizeof(SlotState), 40u);
  EXPECT_EQ(offsetof(SlotState, stage), 0u);
  EXPECT_EQ(offsetof(SlotState, blend_operator), 1u);
  EXPECT_EQ(offsetof(SlotState, curve), 2u);
  EXPECT_EQ(offsetof(SlotState, flags), 3u);
  EXPECT_EQ(offsetof(SlotState, blueprint), 4u);
  EXPECT_EQ(offsetof(SlotState, amplitude), 8u);
  EXPECT_EQ(offsetof(SlotState, ramp_start), 12u);
  EXPECT_EQ(offsetof(SlotState, target), 16u);
  EXPECT_EQ(offsetof(SlotState, ramp_steps), 20u);
  EXPECT_EQ(offsetof(SlotState, ramp_done), 24u);
  EXPECT_EQ(offsetof(SlotState, age_steps), 28u);
  EXPECT_EQ(offsetof(SlotState, steps_in_stage), 32u);
  EXPECT_EQ(offsetof(SlotState, num_seeds), 36u);
}

TEST(SeedStage, FollowsExactlyTheDesignedTransitions) {
  const std::set<std::pair<SeedStage, SeedStage>> designed{
      {kDormant, kGerminated}, {kGerminated, kTraining}, {kTraining, kBlending},   {kBlending, kHolding},
      {kHolding, kFossilized}, {kGerminated, kPruned},   {kTraining, kPruned},     {kBlending, kPruned},
      {kHolding, kPruned},     {kPruned, kEmbargoed},    {kEmbargoed, kResetting}, {kResetting, kDormant},
      {kHolding, kBlending},  // a scheduled removal
  };
  for (const SeedStage from : kStages)
    for (const SeedStage to : kStages)
      EXPECT_EQ(may_follow(from, to), designed.contains({from, to})) << name_of(from) << " " << name_of(to);
}

TEST(SeedStage, AllowsExactlyTheDesignedOps) {
  const std::set<std::pair<SeedStage, SeedOp>> designed{
      {kDormant, SeedOp::kGerminate}, {kGerminated, SeedOp::kPrune},           {kTraining, SeedOp::kAdvance},
      {kTraining, SeedOp::kPrune},    {kBlending, SeedOp::kAdvance},           {kBlending, SeedOp::kPrune},
      {kHolding, SeedOp::kFossilize}, {kHolding, SeedOp::kSetAmplitudeTarget}, {kHolding, SeedOp::kPrune},
  };
  for (const SeedStage stage : kStages) {
    for (int i = 0; i < kNumSeedOps; ++i) {
      const auto op = static_cast<SeedOp>(i);
      EXPECT_EQ((ops_in(stage) & bit_of(op)) != 0, op == SeedOp::kWait || designed.contains({stage, op}))
          << name_of(stage) << " " << name_of(op);
    }
  }
}

TEST(SeedStage, MasksPruneOnlyForTheNewAndTheMoving) {
  for (const SeedStage stage : kStages) {
    SlotState state = sound(stage);
    for (const int age : {0, 1}) {
      for (const uint8_t flags : {uint8_t{0}, kSlotRamping}) {
        state.age_steps = age;
        state.flags = flags;
        for (int i = 0; i < kNumSeedOps; ++i) {
          const auto op = static_cast<SeedOp>(i);
          const bool listed = (ops_in(stage) & bit_of(op)) != 0;
          EXPECT_EQ(may_choose(state, op), listed && (op != SeedOp::kPrune || (age == 1 && flags == 0)))
              << name_of(stage) << " " << name_of(op) << " age " << age << " flags " << int{flags};
        }
      }
    }
  }
}

TEST(SeedStage, PartsSeedsFromCleaningUp) {
  EXPECT_FALSE(holds_seed(kDormant) || is_cleaning_up(kDormant));
  for (const SeedStage stage : {kGerminated, kTraining, kBlending, kHolding, kFossilized})
    EXPECT_TRUE(holds_seed(stage) && !is_cleaning_up(stage)) << name_of(stage);
  for (const SeedStage stage : {kPruned, kEmbargoed, kResetting})
    EXPECT_TRUE(!holds_seed(stage) && is_cleaning_up(stage)) << name_of(stage);
}

TEST(SeedStage, PartsSeedsThatAreFeltFromThoseThatOnlyLearn) {
  for (const SeedStage stage : kStages) {
    SlotState state{.stage = stage, .amplitude = 0.5f};
    EXPECT_EQ(is_felt(state), stage == kBlending || stage == kHolding || stage == kFossilized)
        << name_of(stage);
    if (stage != kTraining && stage != kGerminated) {  // which have no amplitude
      EXPECT_EQ(is_undecided(state), is_felt(state) && stage != kFossilized) << name_of(stage);
    }
    state.amplitude = 0;
    EXPECT_FALSE(is_felt(state) || is_undecided(state)) << name_of(stage);
  }
}

TEST(SeedStage, NamesEveryValueAndNoOther) {
  const auto names = [](auto zero, int count) {
    std::vector<std::string> all;
    for (int i = 0; i <= count; ++i) all.push_back(name_of(static_cast<decltype(zero)>(i)));
    return all;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(kDormant, kNumSeedStages),
            (Names{"DORMANT", "GERMINATED", "TRAINING", "BLENDING", "HOLDING", "FOSSILIZED", "PRUNED",
                   "EMBARGOED", "RESETTING", "?"}));
  EXPECT_EQ(names(SeedOp::kWait, kNumSeedOps),
            (Names{"WAIT", "GERMINATE", "SET_ALPHA_TARGET", "PRUNE", "FOSSILIZE", "ADVANCE", "?"}));
  EXPECT_EQ(names(BlendOperator::kAdd, kNumBlendOperators), (Names{"ADD", "MULTIPLY", "GATE", "?"}));
  EXPECT_EQ(names(BlendCurve::kLinear, kNumBlendCurves),
            (Names{"linear", "cosine", "sigmoid6", "sigmoid12", "sigmoid24", "?"}));
}

TEST(SlotState, IsSoundWhenFreshAndInEveryStage) {
  EXPECT_EQ(fault_in(SlotState{}), std::nullopt);
  for (const SeedStage stage : kStages) EXPECT_EQ(fault_in(sound(stage)), std::nullopt) << name_of(stage);
  EXPECT_EQ(fault_in(ramping()), std::nullopt);
  EXPECT_EQ(fault_in(removing()), std::nullopt);
}

TEST(SlotState, ShowsItsFault) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    const char* says;
    SlotState state;
    std::function<void(SlotState&)> spoil;
  };
  const std::vector<Case> cases{
      {"stage 9", SlotState{}, [](SlotState& s) { s.stage = static_cast<SeedStage>(9); }},
      {"blend operator 3", SlotState{}, [](SlotState& s) { s.blend_operator = BlendOperator{3}; }},
      {"curve 5", SlotState{}, [](SlotState& s) { s.curve = BlendCurve{5}; }},
      {"unknown flags 0x10", sound(kHolding), [](SlotState& s) { s.flags = 16; }},
      {"moving amplitude after 0 of 5", sound(kHolding),
       [](SlotState& s) {
         s.flags = kSlotMoving;
         s.ramp_done = 0;
       }},
      {"before BLENDING", sound(kTraining), [](SlotState& s) { s.flags = kSlotMoving; }},
      {"removal", arrived_at_zero(), [](SlotState& s) { s.flags = kSlotRemoving; }},
      {"outside 0 to 1", sound(kHolding), [nan](SlotState& s) { s.amplitude = nan; }},
      {"outside 0 to 1", sound(kTraining), [](SlotState& s) { s.target = 1.5f; }},
      {"outside 0 to 1", sound(kTraining), [](SlotState& s) { s.ramp_start = -0.5f; }},
      {"negative", sound(kTraining), [](SlotState& s) { s.num_seeds = -1; }},
      {"blueprint 2 without", sound(kPruned), [](SlotState& s) { s.blueprint = 2; }},
      {"amplitude 0.5", sound(kEmbargoed), [](SlotState& s) { s.amplitude = 0.5f; }},
      {"ramp without", sound(kResetting), [](SlotState& s) { s.flags = kSlotRemoving; }},
      {"age 1 without", sound(kPruned), [](SlotState& s) { s.age_steps = 1; }},
      {"operator or curve without", SlotState{}, [](SlotState& s) { s.curve = BlendCurve::kCosine; }},
      {"2 steps in DORMANT", SlotState{}, [](SlotState& s) { s.steps_in_stage = 2; }},
      {"no blueprint", sound(kFossilized), [](SlotState& s) { s.blueprint = kNoBlueprint; }},
      {"none was counted", sound(kTraining), [](SlotState& s) { s.num_seeds = 0; }},
      {"age 9, though 10", sound(kTraining), [](SlotState& s) { s.steps_in_stage = 10; }},
      {"before it was trained", sound(kGerminated), [](SlotState& s) { s.age_steps = 1; }},
      {"removal", removing(), [](SlotState& s) { s.stage = kHolding; }},
      {"removal", removing(), [](SlotState& s) { s.target = 0.1f; }},
      {"removal", removing(), [](SlotState& s) { s.flags = kSlotRemoving; }},
      {"target 0", sound(kTraining), [](SlotState& s) { s.target = 0; }},
      {"before BLENDING", sound(kTraining), [](SlotState& s) { s.amplitude = 0.1f; }},
      {"before BLENDING", sound(kGerminated), [](SlotState& s) { s.flags = kSlotRamping; }},
      {"ramp in FOSSILIZED", ramping(), [](SlotState& s) { s.stage = kFossilized; }},
      {"5 of 5", ramping(), [](SlotState& s) { s.ramp_done = 5; }},
      {"outside its ramp", ramping(), [](SlotState& s) { s.amplitude = 0.8f; }},
      {"outside its ramp", removing(), [](SlotState& s) { s.ramp_start = 0.2f; }},
      {"away from its target", sound(kHolding), [](SlotState& s) { s.amplitude = 0.6f; }},
  };
  for (const Case& test : cases) {
    SlotState state = test.state;
    ASSERT_EQ(fault_in(state), std::nullopt) << test.says;
    test.spoil(state);
    const auto fault = fault_in(state);
    ASSERT_TRUE(fault.has_value()) << test.says;
    EXPECT_NE(fault->find(test.says), std::string::npos) << "'" << test.says << "' is not in: " << *fault;
  }
}

}  // namespace
}  // namespace espalier
