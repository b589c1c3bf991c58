// How a seed is removed, at once or on a schedule, and what becomes of its slot.
#include <gtest/gtest.h>

#include <vector>

#include "espalier/core/error.h"
#include "espalier/grow/lifecycle.h"
#include "tests/grow/grown.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using namespace testing;
using enum SeedStage;

TEST(LifecycleRemoval, CoolsASlotDownForFiveStepsAfterAPrune) {
  Lifecycle life(small_options());
  bring_to(life, kTraining);
  life.prune(0, 0);
  EXPECT_EQ(life.at(0, 0).stage, kPruned);
  EXPECT_EQ(stages_over(life, 8), (std::vector<SeedStage>{kEmbargoed, kEmbargoed, kEmbargoed, kEmbargoed,
                                                          kEmbargoed, kResetting, kDormant, kDormant}));
  EXPECT_TRUE(life.germinate(0, 0, conv()).passed());
  EXPECT_EQ(life.at(0, 0).num_seeds, 2);
}

TEST(LifecycleRemoval, CoolsDownForAsLongAsItIsTold) {
  LifecycleOptions options = small_options();
  options.embargo_steps = 1;
  Lifecycle life(options);
  bring_to(life, kHolding);
  life.prune(0, 0);
  EXPECT_EQ(stages_over(life, 3), (std::vector<SeedStage>{kEmbargoed, kResetting, kDormant}));
}

TEST(LifecycleRemoval, KeepsASeedWhoseRemovalIsCalledOff) {
  Lifecycle life(small_options());
  bring_to(life, kHolding);
  EXPECT_ERROR(life.keep(0, 0), UsageError, "HOLDING", "want a removal under way");
  life.prune(0, 0, {.steps = 2});
  run_epochs(life, 1);
  life.keep(0, 0);
  EXPECT_EQ(life.at(0, 0).stage, kHolding);
  EXPECT_FALSE(is_removing(life.at(0, 0)) || is_ramping(life.at(0, 0)) || is_moving(life.at(0, 0)));
  EXPECT_EQ(fault_in(life.at(0, 0)), std::nullopt);
  run_epochs(life, 3);
  EXPECT_EQ(life.at(0, 0).stage, kHolding);
  EXPECT_EQ(life.at(0, 0).amplitude, 0.35f);
  EXPECT_TRUE(life.fossilize(0, 0, healthy()).passed());
}

TEST(LifecycleRemoval, RemovesOnASchedule) {
  Lifecycle life(small_options());
  bring_to(life, kHolding);
  life.prune(0, 0, {.steps = 2});
  EXPECT_EQ(life.at(0, 0).stage, kBlending);
  EXPECT_TRUE(is_removing(life.at(0, 0)));
  EXPECT_EQ(life.at(0, 0).amplitude, 0.7f);
  run_epochs(life, 1);
  EXPECT_EQ(life.at(0, 0).amplitude, 0.35f);
  EXPECT_EQ(life.advance(0, 0, healthy()).summary(),
            "G3 failed: stays (being removed), at_target (amplitude 0.35, target 0)");
  // In the epoch in which it arrives it is still felt, batch by batch less.
  EXPECT_TRUE(life.begin_epoch().empty());
  EXPECT_TRUE(is_moving(life.at(0, 0)));
  EXPECT_EQ(life.at(0, 0).amplitude, 0.0f);
  EXPECT_EQ(fault_in(life.at(0, 0)), std::nullopt);
  const auto moves = life.begin_epoch();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].from, kBlending);
  EXPECT_EQ(moves[0].to, kPruned);
  EXPECT_EQ(moves[0].blueprint, 6);
  EXPECT_EQ(life.at(0, 0).blueprint, kNoBlueprint);
  EXPECT_EQ(life.at(0, 0).amplitude, 0.0f);
  EXPECT_EQ(stages_over(life, 1), std::vector<SeedStage>{kEmbargoed});
}

TEST(LifecycleRemoval, RemovesOnAScheduleFromABlendThatArrived) {
  Lifecycle life(small_options());
  bring_to(life, kBlending);
  life.prune(0, 0, {.steps = 2});
  EXPECT_TRUE(is_removing(life.at(0, 0)));
  EXPECT_EQ(stages_over(life, 3), (std::vector<SeedStage>{kBlending, kBlending, kPruned}));
}

TEST(LifecycleRemoval, RefusesAScheduledRemovalInTheMiddleOfABlend) {
  Lifecycle life(small_options());
  bring_to(life, kTraining);
  ASSERT_TRUE(life.advance(0, 0, healthy()).passed());
  run_epochs(life, 1);
  EXPECT_ERROR(life.prune(0, 0, {.steps = 3}), UsageError, "lane 0, slot r0c0", "PRUNE over 3 steps",
               "BLENDING", "allowed there: PRUNE at once");
  EXPECT_FALSE(is_removing(life.at(0, 0)));
  life.prune(0, 0);
  EXPECT_EQ(life.at(0, 0).stage, kPruned);
}

TEST(LifecycleRemoval, StopsAScheduledRemovalShortWhenPrunedAtOnce) {
  Lifecycle life(small_options());
  bring_to(life, kHolding);
  life.prune(0, 0, {.steps = 8});
  run_epochs(life, 1);
  EXPECT_ERROR(life.prune(0, 0, {.steps = 3}), UsageError, "PRUNE over 3 steps");
  life.prune(0, 0);
  EXPECT_EQ(life.at(0, 0).stage, kPruned);
}

TEST(LifecycleRemoval, RemovesAtOnceWhatHasNoAmplitudeYet) {
  for (const SeedStage stage : {kGerminated, kTraining}) {
    Lifecycle life(small_options());
    bring_to(life, stage);
    life.prune(0, 0, {.steps = 8});
    EXPECT_EQ(life.at(0, 0).stage, kPruned) << name_of(stage);
  }
}

TEST(LifecycleRemoval, FreesASlotToTheBytesOfAFreshOne) {
  for (const SeedStage stage : {kGerminated, kTraining, kBlending, kHolding}) {
    Lifecycle life(small_options());
    bring_to(life, stage);
    life.prune(0, 0);
    run_epochs(life, 10);
    const std::vector<SlotState> fresh{SlotState{.num_seeds = 1}, SlotState{}, SlotState{}};
    EXPECT_TRUE(same_bytes(life.states(), fresh)) << name_of(stage);
  }
}

}  // namespace
}  // namespace espalier::grow
