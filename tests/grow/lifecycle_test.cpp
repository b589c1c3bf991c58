#include "espalier/grow/lifecycle.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "tests/grow/grown.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using namespace testing;
using enum SeedStage;

TEST(Lifecycle, GrowsASeedFromDormantToFossilized) {
  Lifecycle life(small_options());
  EXPECT_EQ(life.at(0, 1).stage, kDormant);
  EXPECT_TRUE(life.germinate(0, 1, conv(2)).passed());
  EXPECT_EQ(life.at(0, 1).stage, kGerminated);
  EXPECT_EQ(life.at(0, 1).blueprint, 6);
  EXPECT_EQ(life.at(0, 1).amplitude, 0.0f);

  run_epochs(life, 2);
  EXPECT_EQ(life.at(0, 1).stage, kTraining);
  EXPECT_EQ(life.at(0, 1).steps_in_stage, 2);
  const GateReport early = life.advance(0, 1, healthy());
  EXPECT_EQ(early.summary(), "G2 failed: training_steps (2 of 3)");
  EXPECT_EQ(life.at(0, 1).stage, kTraining);
  run_epochs(life, 1);
  EXPECT_TRUE(life.advance(0, 1, healthy()).passed());

  EXPECT_EQ(life.at(0, 1).stage, kBlending);
  EXPECT_EQ(life.at(0, 1).amplitude, 0.0f);
  run_epochs(life, 1);
  EXPECT_EQ(life.at(0, 1).amplitude, 0.35f);
  EXPECT_EQ(life.advance(0, 1, healthy()).gate, Gate::kG3);
  EXPECT_EQ(life.at(0, 1).stage, kBlending);
  run_epochs(life, 4);  // arrives after two, and then waits to be advanced
  EXPECT_EQ(life.at(0, 1).stage, kBlending);
  EXPECT_EQ(life.at(0, 1).amplitude, 0.7f);
  EXPECT_TRUE(life.advance(0, 1, healthy()).passed());

  EXPECT_EQ(life.at(0, 1).stage, kHolding);
  EXPECT_TRUE(life.fossilize(0, 1, healthy()).passed());
  EXPECT_EQ(life.at(0, 1).stage, kFossilized);
  run_epochs(life, 50);
  EXPECT_EQ(life.at(0, 1).stage, kFossilized);
  EXPECT_EQ(life.at(0, 1).amplitude, 0.7f);
  EXPECT_EQ(life.at(0, 1).age_steps, 58);
  EXPECT_EQ(life.at(0, 1).steps_in_stage, 50);
}

// What may be asked in each stage, written out once more, and what then happens.
TEST(Lifecycle, AnswersEveryOperationInEveryStage) {
  const std::map<std::pair<SeedStage, SeedOp>, SeedStage> leads_to{
      {{kDormant, SeedOp::kGerminate}, kGerminated}, {{kGerminated, SeedOp::kPrune}, kPruned},
      {{kTraining, SeedOp::kAdvance}, kBlending},    {{kTraining, SeedOp::kPrune}, kPruned},
      {{kBlending, SeedOp::kAdvance}, kHolding},     {{kBlending, SeedOp::kPrune}, kPruned},
      {{kHolding, SeedOp::kFossilize}, kFossilized}, {{kHolding, SeedOp::kSetAmplitudeTarget}, kHolding},
      {{kHolding, SeedOp::kPrune}, kPruned},
  };
  for (int s = 0; s < kNumSeedStages; ++s) {
    for (int o = 0; o < kNumSeedOps; ++o) {
      const auto stage = static_cast<SeedStage>(s);
      const auto op = static_cast<SeedOp>(o);
      SCOPED_TRACE(std::string(name_of(op)) + " in " + name_of(stage));
      Lifecycle life(small_options(2));
      bring_to(life, stage, 1, 2);
      const auto before = copy_of(life.states());
      const SeedAction action{.op = op, .slot = 2, .blueprint = 1, .target = 0.5f};
      const auto expected = leads_to.find({stage, op});
      if (op == SeedOp::kWait) {
        EXPECT_EQ(life.act(1, action, healthy()).gate, Gate::kNone);
        EXPECT_TRUE(same_bytes(life.states(), before));
      } else if (expected == leads_to.end()) {
        EXPECT_ERROR(life.act(1, action, healthy()), UsageError, "lane 1, slot r1c0", name_of(stage),
                     std::string("cannot ") + name_of(op), "allowed there: WAIT");
        EXPECT_TRUE(same_bytes(life.states(), before));
      } else {
        EXPECT_TRUE(life.act(1, action, healthy()).passed());
        EXPECT_EQ(life.at(1, 2).stage, expected->second);
        EXPECT_EQ(life.at(1, 2).steps_in_stage,
                  stage == kHolding && op == SeedOp::kSetAmplitudeTarget ? before[5].steps_in_stage : 0);
      }
    }
  }
}

TEST(Lifecycle, BeginsAnEpochInEveryStage) {
  const std::map<SeedStage, SeedStage> leads_to{
      {kDormant, kDormant},   {kGerminated, kTraining}, {kTraining, kTraining},
      {kBlending, kBlending}, {kHolding, kHolding},     {kFossilized, kFossilized},
      {kPruned, kEmbargoed},  {kEmbargoed, kEmbargoed}, {kResetting, kDormant},
  };
  for (const auto& [from, to] : leads_to) {
    Lifecycle life(small_options());
    bring_to(life, from);
    const auto moves = life.begin_epoch();
    EXPECT_EQ(life.at(0, 0).stage, to) << name_of(from);
    EXPECT_EQ(moves.size(), from == to ? 0u : 1u) << name_of(from);
  }
}

TEST(Lifecycle, RefusesToFossilizeWhatIsStillBlending) {
  Lifecycle life(small_options(4));
  bring_to(life, kBlending, 3, 1);
  try {
    life.fossilize(3, 1, healthy());
    ADD_FAILURE() << "did not throw";
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "lane 3, slot r0c1: cannot FOSSILIZE in stage BLENDING; allowed there: WAIT, PRUNE, ADVANCE");
  }
}

TEST(Lifecycle, StaysWhereItIsWhenAGateFails) {
  LifecycleOptions options = small_options();
  options.gates.mode = GateMode::kStrict;
  SeedMeasurements useless = healthy();
  useless.improvement_points = useless.contribution_points = -1;
  for (const SeedStage stage : {kTraining, kHolding}) {
    Lifecycle life(options);
    bring_to(life, stage);
    const auto before = copy_of(life.states());
    EXPECT_FALSE((stage == kTraining ? life.advance(0, 0, useless) : life.fossilize(0, 0, useless)).passed());
    EXPECT_TRUE(same_bytes(life.states(), before));
  }
}

TEST(Lifecycle, PlantsNothingWithoutACompleteIdentity) {
  Lifecycle life(small_options());
  const auto before = copy_of(life.states());
  for (const Germination& seed : std::vector<Germination>{
           {}, {.blueprint = 8}, {.blueprint = 1, .target = 0}, {.blueprint = 1, .tempo_steps = -1}}) {
    const GateReport report = life.germinate(0, 0, seed);
    EXPECT_EQ(report.gate, Gate::kG0);
    EXPECT_FALSE(report.passed());
    EXPECT_TRUE(same_bytes(life.states(), before));
  }
}

TEST(Lifecycle, BlendsAtOnceWithATempoOfZero) {
  Lifecycle life(small_options());
  ASSERT_TRUE(life.germinate(0, 0, conv(0)).passed());
  run_epochs(life, 3);
  EXPECT_EQ(life.at(0, 0).amplitude, 0.0f);
  ASSERT_TRUE(life.advance(0, 0, healthy()).passed());
  EXPECT_EQ(life.at(0, 0).amplitude, 0.7f);
  EXPECT_TRUE(life.advance(0, 0, healthy()).passed());
}

TEST(Lifecycle, RetargetsWhileHoldingFromWhereItIs) {
  Lifecycle life(small_options());
  bring_to(life, kHolding);
  life.set_amplitude_target(0, 0, {.target = 0.3f, .steps = 2, .blend_operator = BlendOperator::kGate});
  EXPECT_EQ(life.at(0, 0).stage, kHolding);
  EXPECT_EQ(life.at(0, 0).amplitude, 0.7f);
  EXPECT_EQ(life.at(0, 0).blend_operator, BlendOperator::kGate);
  run_epochs(life, 1);
  EXPECT_EQ(life.at(0, 0).amplitude, 0.5f);
  EXPECT_EQ(life.fossilize(0, 0, healthy()).summary(), "G5 failed: at_target (amplitude 0.5, target 0.3)");
  life.set_amplitude_target(0, 0, {.target = 1, .steps = 2});
  EXPECT_EQ(life.at(0, 0).amplitude, 0.5f);
  run_epochs(life, 1);
  EXPECT_EQ(life.at(0, 0).amplitude, 0.75f);
  life.set_amplitude_target(0, 0, {.target = 0.5f});
  EXPECT_EQ(life.at(0, 0).amplitude, 0.5f);
  EXPECT_TRUE(life.fossilize(0, 0, healthy()).passed());
}

TEST(Lifecycle, RefusesTargetsAndRampsThatCannotBeMeant) {
  Lifecycle life(small_options());
  bring_to(life, kHolding);
  const auto before = copy_of(life.states());
  for (const float target : {0.0f, -1.0f, 1.5f, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_ERROR(life.set_amplitude_target(0, 0, {.target = target}), UsageError, "lane 0, slot r0c0",
                 "HOLDING", "target: want above 0 and at most 1", "PRUNE");
  EXPECT_ERROR(life.set_amplitude_target(0, 0, {.steps = -1}), UsageError, "SET_ALPHA_TARGET", "steps", "-1");
  EXPECT_ERROR(life.set_amplitude_target(0, 0, {.curve = BlendCurve{7}}), UsageError, "curve", "got 7");
  EXPECT_ERROR(life.set_amplitude_target(0, 0, {.blend_operator = BlendOperator{9}}), UsageError, "operator",
               "9");
  EXPECT_ERROR(life.prune(0, 0, {.steps = -3}), UsageError, "PRUNE", "steps", "-3");
  EXPECT_ERROR(life.act(0, {.op = SeedOp{6}}, healthy()), UsageError, "lane 0", "op: want 0 to 5, got 6");
  EXPECT_TRUE(same_bytes(life.states(), before));
}

TEST(Lifecycle, ReportsMovesInTheOrderOfLanesThenSlots) {
  Lifecycle life(small_options(3));
  ASSERT_TRUE(life.germinate(2, 0, conv()).passed());
  ASSERT_TRUE(life.germinate(0, 2, conv()).passed());
  ASSERT_TRUE(life.germinate(0, 1, conv()).passed());
  const auto moves = life.begin_epoch();
  ASSERT_EQ(moves.size(), 3u);
  EXPECT_EQ(moves[0].lane * 3 + moves[0].slot, 1);
  EXPECT_EQ(moves[1].lane * 3 + moves[1].slot, 2);
  EXPECT_EQ(moves[2].lane * 3 + moves[2].slot, 6);
  EXPECT_TRUE(life.begin_epoch().empty());
}

TEST(Lifecycle, BeginsTheEpochOfOneLaneAlone) {
  Lifecycle life(small_options(2));
  for (const int64_t lane : {0, 1}) ASSERT_TRUE(life.germinate(lane, 0, conv()).passed());
  EXPECT_EQ(life.begin_epoch(1).size(), 1u);
  EXPECT_EQ(life.at(0, 0).stage, kGerminated);
  EXPECT_EQ(life.at(1, 0).stage, kTraining);
}

TEST(Lifecycle, PutsALaneBackToASnapshot) {
  Lifecycle life(small_options(2));
  bring_to(life, kHolding, 0, 1);
  bring_to(life, kTraining, 1, 1);
  const auto snapshot = copy_of(life.lane_states(0));
  const auto other = copy_of(life.lane_states(1));
  life.prune(0, 1);
  ASSERT_TRUE(life.germinate(0, 2, conv()).passed());
  life.restore_lane(0, snapshot);
  EXPECT_TRUE(same_bytes(life.lane_states(0), snapshot));
  life.reset_lane(0);
  EXPECT_TRUE(same_bytes(life.lane_states(0), std::vector<SlotState>(3)));
  EXPECT_TRUE(same_bytes(life.lane_states(1), other));
}

TEST(Lifecycle, KeepsABarWhileSeedsComeAndGoUntilTheLaneBeginsAnew) {
  Lifecycle life(small_options());
  bring_to(life, kHolding, 0, 1);
  life.bar(0, 1);
  EXPECT_ERROR(life.act(0, {.op = SeedOp::kPrune, .slot = 1}, healthy()), UsageError, "PRUNE", "barred",
               "WAIT");
  EXPECT_ERROR(life.act(0, {.op = SeedOp::kSetAmplitudeTarget, .slot = 1, .target = 0.5f}, healthy()),
               UsageError, "SET_ALPHA_TARGET", "barred");
  EXPECT_EQ(life.at(0, 1).stage, kHolding);
  life.prune(0, 1);  // by whoever must
  for (int epoch = 0; epoch < 20; ++epoch) {
    EXPECT_TRUE(is_barred(life.at(0, 1)));
    EXPECT_FALSE(fault_in(life.at(0, 1)));
    run_epochs(life, 1);
  }
  EXPECT_EQ(life.at(0, 1).stage, kDormant);
  EXPECT_FALSE(may_choose(life.at(0, 1), SeedOp::kGerminate));
  EXPECT_ERROR(life.act(0, {.op = SeedOp::kGerminate, .slot = 1, .blueprint = 6, .steps = 1}, healthy()),
               UsageError, "GERMINATE", "barred");
  EXPECT_TRUE(may_choose(life.at(0, 0), SeedOp::kGerminate)) << "another slot";
  life.reset_lane(0);
  EXPECT_TRUE(may_choose(life.at(0, 1), SeedOp::kGerminate));
}

TEST(Lifecycle, RefusesASnapshotThatIsNotSound) {
  Lifecycle life(small_options());
  bring_to(life, kHolding);
  const auto before = copy_of(life.states());
  auto states = before;
  states[0].amplitude = 0.2f;
  EXPECT_ERROR(life.restore_lane(0, states), Error, "lane 0, slot r0c0", "away from its target");
  states = before;
  states[0].blueprint = 8;
  EXPECT_ERROR(life.restore_lane(0, states), Error, "lane 0, slot r0c0", "blueprint 8", "0 to 7");
  states = before;
  states.pop_back();
  EXPECT_ERROR(life.restore_lane(0, states), Error, "lane 0", "3 slots", "got 2");
  EXPECT_TRUE(same_bytes(life.states(), before));
}

TEST(Lifecycle, RefusesLanesSlotsAndOptionsThatDoNotExist) {
  Lifecycle life(small_options(2));
  EXPECT_ERROR(life.germinate(2, 0, conv()), UsageError, "lane: want 0 to 1, got 2");
  EXPECT_ERROR(life.prune(-1, 0), UsageError, "lane: want 0 to 1, got -1");
  EXPECT_ERROR(life.at(0, 3), UsageError, "slot: want 0 to 2 (r0c0, r0c1, r1c0), got 3");
  EXPECT_ERROR(life.lane_states(2), UsageError, "lane: want 0 to 1, got 2");
  EXPECT_ERROR(life.begin_epoch(2), UsageError, "lane: want 0 to 1, got 2");
  EXPECT_ERROR(Lifecycle({.lanes = 0, .slots = {"r0c0"}, .num_blueprints = 1}), UsageError, "lanes", "got 0");
  EXPECT_ERROR(Lifecycle({.num_blueprints = 1}), UsageError, "slots", "none");
  EXPECT_ERROR(Lifecycle({.slots = {"r0c0"}}), UsageError, "num_blueprints", "got 0");
  EXPECT_ERROR(Lifecycle({.slots = {"r0c0"}, .num_blueprints = 1, .embargo_steps = 0}), UsageError,
               "embargo_steps", "got 0");
}

}  // namespace
}  // namespace espalier::grow
