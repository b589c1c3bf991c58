#include "espalier/train/control/controller.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <functional>
#include <set>
#include <tuple>

#include "espalier/core/error.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/policy/action/masks.h"
#include "tests/policy/num_seeds.h"
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
  EXPECT_ERROR(controllers().at("greedy").make({}), UsageError, "controller", "none, random, heuristic",
               "'greedy'");
}

TEST(NoController, AlwaysWaits) {
  const std::vector<LaneReport> lanes(3);
  const auto actions = controllers().at("none").make({})->decide(lanes);
  ASSERT_EQ(actions.size(), 3u);
  for (const SeedAction& action : actions) EXPECT_EQ(action.op, SeedOp::kWait);
}

TEST(RandomController, WalksThroughEveryStageAndIsNeverRefused) {
  constexpr int64_t kLanes = 6;
  grow::Lifecycle life = life_of(kLanes);
  const auto controller = controllers().at("random").make(options_with(3));
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

// Every action of a controller by rules is one that a policy in the same state could choose.
void expect_the_policys_actions(const std::string& name) {
  constexpr int64_t kLanes = 6, kMaxSeeds = 2;
  grow::Lifecycle life = life_of(kLanes);
  const policy::ActionSpace space{.num_slots = 3, .num_blueprints = 8};
  const at::Tensor enabled = at::ones({3}, at::kBool);
  enabled[1] = false;
  const policy::MaskRules rules(space, enabled, kMaxSeeds);
  ControllerOptions options = options_with(11);
  options.limits = {.enabled_slots = {true, false, true}, .max_seeds = kMaxSeeds};
  const auto controller = controllers().at(name).make(options);
  std::set<SeedAction, decltype([](const SeedAction& a, const SeedAction& b) {
             return std::tie(a.op, a.slot, a.blueprint, a.blend_operator, a.curve, a.steps, a.target) <
                    std::tie(b.op, b.slot, b.blueprint, b.blend_operator, b.curve, b.steps, b.target);
           })>
      all;  // the policy's
  std::array<int64_t, policy::kNumHeads> choice{};
  const std::function<void(int)> enumerate = [&](int head) {
    if (head == policy::kNumHeads) {
      all.insert(policy::to_seed_action(choice));
      return;
    }
    auto& here = choice[static_cast<size_t>(head)];
    for (here = 0; here < space.size(static_cast<policy::Head>(head)); ++here) enumerate(head + 1);
  };
  enumerate(0);

  int64_t acted = 0;
  for (int64_t epoch = 1; epoch <= 200; ++epoch) {
    life.begin_epoch();
    std::vector<LaneReport> reports;
    const at::Tensor stage = at::zeros({kLanes, 3}, at::kLong), flags = at::zeros({kLanes, 3}, at::kLong),
                     age = at::zeros({kLanes, 3}, at::kLong);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      reports.push_back(report_of(life, lane, epoch));
      reports.back().accuracies = {0.5, 0.5, 0.5, 0.5};  // stands still
      for (int64_t slot = 0; slot < 3; ++slot) {
        const SlotState& state = life.at(lane, slot);
        stage[lane][slot] = static_cast<int64_t>(state.stage);
        flags[lane][slot] = state.flags;
        age[lane][slot] = state.age_steps;
      }
    }
    const policy::ActionMasks masks = rules.masks_of({.stage = stage,
                                                      .flags = flags,
                                                      .age_steps = age,
                                                      .num_seeds = policy::testing::num_seeds_of(stage)});
    const auto actions = controller->decide(reports);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const SeedAction& action = actions[static_cast<size_t>(lane)];
      EXPECT_TRUE(all.contains(action)) << name << ": " << name_of(action.op) << ", steps " << action.steps;
      const auto op = static_cast<int64_t>(action.op);
      if (action.op != SeedOp::kWait) {
        EXPECT_TRUE(masks.slot[lane][op][action.slot].item<bool>())
            << name << ", epoch " << epoch << ", lane " << lane << ": " << name_of(action.op) << " in slot "
            << action.slot;
        acted += 1;
      }
      life.act(lane, action, {.gradient_norm = 1.0, .contribution_points = epoch % 3 == 0 ? -1.0 : 1.0});
    }
    for (int64_t lane = 0; lane < kLanes; ++lane)
      if (life.at(lane, 0).stage == SeedStage::kFossilized) life.reset_lane(lane);
  }
  EXPECT_GT(acted, 50) << name;
}

TEST(Controllers, ByRulesChooseWhatThePolicyMayChoose) {
  expect_the_policys_actions("random");
  expect_the_policys_actions("heuristic");
}

TEST(RandomController, DecidesALaneAlikeWhateverOthersThereAre) {
  const grow::Lifecycle life = life_of(4);
  const auto of = [&](std::vector<int64_t> lanes, uint64_t seed, int64_t epoch) {
    std::vector<LaneReport> reports;
    for (const int64_t lane : lanes) reports.push_back(report_of(life, lane, epoch));
    return controllers().at("random").make(options_with(seed))->decide(reports);
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
  const auto controller = controllers().at("random").make(options_with(1));
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
