#include "espalier/train/control/heuristic.h"

#include <gtest/gtest.h>

#include <limits>

namespace espalier::train {
namespace {

ControllerOptions with_two_blueprints() {
  return {.blueprints = {6, 2}};
}

// Three slots, accuracy that stands still, time enough.
LaneReport still_lane() {
  LaneReport lane{.epoch = 4, .num_epochs = 30, .accuracies = {0.3, 0.5, 0.501, 0.502}};
  lane.slots.resize(3);
  return lane;
}

SeedAction decide(const LaneReport& lane, const ControllerOptions& options = with_two_blueprints()) {
  return HeuristicController(options).decide(std::vector<LaneReport>{lane}).front();
}

// A seed in slot 1.
LaneReport lane_with(SeedStage stage, int32_t steps, grow::SeedMeasurements measured = {}) {
  LaneReport lane = still_lane();
  lane.slots[1] = {.state = {.stage = stage,
                             .blueprint = 6,
                             .amplitude = stage == SeedStage::kHolding ? 1.f : 0.f,
                             .target = 1,
                             .age_steps = steps,
                             .steps_in_stage = steps,
                             .num_seeds = 1},
                   .measured = measured};
  return lane;
}

constexpr int32_t kHold = HeuristicController::kHoldSteps;

TEST(HeuristicController, GerminatesWhereAccuracyStandsStill) {
  const SeedAction action = decide(still_lane());
  EXPECT_EQ(action.op, SeedOp::kGerminate);
  EXPECT_EQ(action.slot, 2);
  EXPECT_EQ(action.blueprint, 6);

  LaneReport rising = still_lane();
  rising.accuracies = {0.3, 0.5, 0.55, 0.6};
  EXPECT_EQ(decide(rising).op, SeedOp::kWait);
  rising.accuracies = {0.3, 0.3};  // too early to tell
  EXPECT_EQ(decide(rising).op, SeedOp::kWait);
}

TEST(HeuristicController, PlantsNothingThatCannotFinishBeforeTheRunEnds) {
  LaneReport late = still_lane();
  const int64_t life = HeuristicController(with_two_blueprints()).shortest_life();
  late.num_epochs = late.epoch + life;
  EXPECT_EQ(decide(late).op, SeedOp::kGerminate);
  late.num_epochs -= 1;
  EXPECT_EQ(decide(late).op, SeedOp::kWait);
}

TEST(HeuristicController, PrunesForWantOfEvidenceOnlyInAStepThatWasValidated) {
  for (LaneReport lane : {lane_with(SeedStage::kTraining, HeuristicController::kPatienceSteps),
                          lane_with(SeedStage::kHolding, HeuristicController::kMaxHoldSteps)}) {
    EXPECT_EQ(decide(lane).op, SeedOp::kPrune);
    lane.is_validated = false;
    EXPECT_EQ(decide(lane).op, SeedOp::kWait);
  }
}

TEST(HeuristicController, TakesTheSlotWhereLeastWasTriedAndBlueprintsInTurn) {
  LaneReport lane = still_lane();
  lane.slots[2].state.num_seeds = 1;
  EXPECT_EQ(decide(lane).slot, 1);
  EXPECT_EQ(decide(lane).blueprint, 2);
  lane.slots[1].state = {.stage = SeedStage::kEmbargoed, .num_seeds = 0};
  EXPECT_EQ(decide(lane).slot, 0);
}

TEST(HeuristicController, TendsOneSeedAtATime) {
  EXPECT_EQ(decide(lane_with(SeedStage::kGerminated, 0)).op, SeedOp::kWait);
  LaneReport lane = still_lane();
  lane.slots[1].state.stage = SeedStage::kFossilized;  // done: the next may come
  EXPECT_EQ(decide(lane).op, SeedOp::kGerminate);
}

TEST(HeuristicController, AdvancesWhatPassesItsGateAndPrunesWhatNeverDoes) {
  const grow::SeedMeasurements healthy{.gradient_norm = 0.5};
  EXPECT_EQ(decide(lane_with(SeedStage::kTraining, 2, healthy)).op, SeedOp::kWait);
  EXPECT_EQ(decide(lane_with(SeedStage::kTraining, 3, healthy)).op, SeedOp::kAdvance);
  EXPECT_EQ(decide(lane_with(SeedStage::kTraining, 3)).op, SeedOp::kWait);
  EXPECT_EQ(decide(lane_with(SeedStage::kTraining, HeuristicController::kPatienceSteps)).op, SeedOp::kPrune);

  ControllerOptions strict = with_two_blueprints();
  strict.gates.mode = grow::GateMode::kStrict;
  EXPECT_EQ(decide(lane_with(SeedStage::kTraining, 3, healthy), strict).op, SeedOp::kWait);
}

TEST(HeuristicController, AdvancesABlendThatArrived) {
  LaneReport lane = lane_with(SeedStage::kBlending, 1);
  lane.slots[1].state.flags = kSlotRamping;
  EXPECT_EQ(decide(lane).op, SeedOp::kWait);
  lane.slots[1].state.flags = 0;
  lane.slots[1].state.amplitude = 1;
  EXPECT_EQ(decide(lane).op, SeedOp::kAdvance);
  lane.slots[1].state.flags = kSlotRemoving | kSlotRamping;
  EXPECT_EQ(decide(lane).op, SeedOp::kWait);
}

TEST(HeuristicController, KeepsWhatHelpsAndRemovesWhatDoesNot) {
  const auto held = [](int32_t steps, double points) {
    return decide(
               lane_with(SeedStage::kHolding, steps, {.gradient_norm = 0.5, .contribution_points = points}))
        .op;
  };
  EXPECT_EQ(held(kHold - 1, 3), SeedOp::kWait);
  EXPECT_EQ(held(kHold, 3), SeedOp::kFossilize);
  EXPECT_EQ(held(kHold, 0.1), SeedOp::kWait);
  EXPECT_EQ(held(HeuristicController::kMaxHoldSteps, 0.1), SeedOp::kFossilize);
  EXPECT_EQ(held(kHold, 0), SeedOp::kPrune);
  EXPECT_EQ(held(kHold, -2), SeedOp::kPrune);
  EXPECT_EQ(held(kHold, std::numeric_limits<double>::quiet_NaN()), SeedOp::kPrune);
  // Not measured: in the end it goes.
  EXPECT_EQ(decide(lane_with(SeedStage::kHolding, kHold, {.gradient_norm = 0.5})).op, SeedOp::kWait);
  EXPECT_EQ(decide(lane_with(SeedStage::kHolding, HeuristicController::kMaxHoldSteps)).op, SeedOp::kPrune);
}

TEST(HeuristicController, PlantsBesideASeedThatItMayNotPrune) {
  LaneReport lane = lane_with(SeedStage::kHolding, kHold, {.gradient_norm = 0.5, .contribution_points = -2});
  lane.slots[1].state.flags = kSlotBarred;
  const SeedAction action = decide(lane);
  EXPECT_EQ(action.op, SeedOp::kGerminate);
  EXPECT_EQ(action.slot, 2);
  lane.slots[1].measured.contribution_points = 3;
  EXPECT_EQ(decide(lane).op, SeedOp::kFossilize);
  lane.slots[1].measured.contribution_points = 0.1;
  EXPECT_EQ(decide(lane).op, SeedOp::kWait) << "it may yet be kept";
}

}  // namespace
}  // namespace espalier::train
