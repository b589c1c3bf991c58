#include "espalier/train/controller.h"

#include <gtest/gtest.h>

#include <set>

#include "espalier/core/error.h"
#include "espalier/grow/lifecycle.h"
#include "tests/support/message.h"

namespace espalier::train {
namespace {

ControllerOptions options_with(uint64_t seed) {
  return {.seed = seed, .blueprints = {6, 2, 3}};
}

LaneReport report_of(const grow::Lifecycle& life, int64_t lane, int64_t epoch) {
  LaneReport report{.lane = lane, .epoch = epoch, .num_epochs = 1000};
  for (const SlotState& state : life.lane_states(lane))
    report.slots.push_back({.state = state, .measured = {.gradient_norm = 1.0, .contribution_points = 1.0}});
  return report;
}

bool same(const SeedAction& a, const SeedAction& b) {
  return a.op == b.op && a.slot == b.slot && a.blueprint == b.blueprint &&
         a.blend_operator == b.blend_operator && a.curve == b.curve && a.steps == b.steps &&
         a.target == b.target;
}

grow::Lifecycle life_of(int64_t lanes) {
  return grow::Lifecycle({.lanes = lanes, .slots = {"r0c0", "r0c1", "r1c0"}, .num_blueprints = 8});
}

TEST(Controller, RefusesAnUnknownNameWithTheList) {
  EXPECT_ERROR(make_controller("greedy", {}), UsageError, "greedy", "none, random, heuristic");
}

TEST(NoController, AlwaysWaits) {
  const std::vector<LaneReport> lanes(3);
  const auto actions = make_controller("none", {})->decide(lanes);
  ASSERT_EQ(actions.size(), 3u);
  for (const SeedAction& action : actions) EXPECT_EQ(action.op, SeedOp::kWait);
}

TEST(RandomController, WalksThroughEveryStageAndIsNeverRefused) {
  constexpr int64_t kLanes = 6;
  grow::Lifecycle life = life_of(kLanes);
  const auto controller = make_controller("random", options_with(3));
  std::set<SeedStage> stages;
  std::set<SeedOp> ops;
  for (int64_t epoch = 1; epoch <= 300; ++epoch) {
    life.begin_epoch();
    std::vector<LaneReport> reports;
    for (int64_t lane = 0; lane < kLanes; ++lane) reports.push_back(report_of(life, lane, epoch));
    const auto actions = controller->decide(reports);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const SeedAction& action = actions[static_cast<size_t>(lane)];
      ops.insert(action.op);
      if (action.op != SeedOp::kWait) {
        EXPECT_TRUE(may_choose(life.at(lane, action.slot), action.op));
      }
      ASSERT_NO_THROW(life.act(lane, action, {.gradient_norm = 1.0, .contribution_points = 1.0}));
      for (const SlotState& state : life.lane_states(lane)) stages.insert(state.stage);
    }
    // Fossils stay for good: without this the walk would end in a population of them.
    for (int64_t lane = 0; lane < kLanes; ++lane)
      if (life.at(lane, 0).stage == SeedStage::kFossilized) life.reset_lane(lane);
  }
  EXPECT_EQ(stages.size(), static_cast<size_t>(kNumSeedStages));
  EXPECT_EQ(ops.size(), static_cast<size_t>(kNumSeedOps));
}

TEST(RandomController, DecidesALaneAlikeWhateverOthersThereAre) {
  const grow::Lifecycle life = life_of(4);
  const auto of = [&](std::vector<int64_t> lanes, uint64_t seed, int64_t epoch) {
    std::vector<LaneReport> reports;
    for (const int64_t lane : lanes) reports.push_back(report_of(life, lane, epoch));
    return make_controller("random", options_with(seed))->decide(reports);
  };
  int same_by_epoch = 0, same_by_lane = 0, same_by_seed = 0;
  for (int64_t epoch = 1; epoch <= 50; ++epoch) {
    const auto all = of({0, 1, 2, 3}, 9, epoch);
    EXPECT_TRUE(same(all[2], of({2}, 9, epoch)[0]));
    EXPECT_TRUE(same(all[1], of({3, 1}, 9, epoch)[1]));
    same_by_epoch += same(all[0], of({0}, 9, epoch + 1)[0]) ? 1 : 0;
    same_by_lane += same(all[0], all[1]) ? 1 : 0;
    same_by_seed += same(all[0], of({0}, 10, epoch)[0]) ? 1 : 0;
  }
  // Half of the time both wait; more would mean that a part of the key is not used.
  EXPECT_LT(same_by_epoch, 35);
  EXPECT_LT(same_by_lane, 35);
  EXPECT_LT(same_by_seed, 35);
}

TEST(RandomController, PlantsOnlyTheBlueprintsItWasGiven) {
  const grow::Lifecycle life = life_of(1);
  const auto controller = make_controller("random", options_with(1));
  std::set<int32_t> planted;
  for (int64_t epoch = 1; epoch <= 100; ++epoch) {
    const std::vector<LaneReport> reports{report_of(life, 0, epoch)};
    const SeedAction action = controller->decide(reports)[0];
    if (action.op == SeedOp::kGerminate) planted.insert(action.blueprint);
  }
  EXPECT_EQ(planted, (std::set<int32_t>{2, 3, 6}));
}

}  // namespace
}  // namespace espalier::train
