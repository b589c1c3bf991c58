#include "espalier/policy/action/space.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace espalier::policy {
namespace {

using Choice = std::array<int64_t, kNumHeads>;

// The heads that an op uses besides `op`, by name.
std::set<std::string> heads_of(SeedOp op) {
  std::set<std::string> names;
  for (int i = 1; i < kNumHeads; ++i)
    if (uses_head(op, static_cast<Head>(i))) names.insert(kHeadNames[i]);
  return names;
}

TEST(Actions, GiveEveryOpTheHeadsItReads) {
  using Names = std::set<std::string>;
  EXPECT_EQ(heads_of(SeedOp::kWait), Names{});
  EXPECT_EQ(heads_of(SeedOp::kGerminate), (Names{"slot", "blueprint", "style", "tempo", "alpha_target"}));
  EXPECT_EQ(heads_of(SeedOp::kSetAmplitudeTarget),
            (Names{"slot", "style", "alpha_target", "alpha_speed", "alpha_curve"}));
  EXPECT_EQ(heads_of(SeedOp::kPrune), (Names{"slot", "alpha_speed", "alpha_curve"}));
  EXPECT_EQ(heads_of(SeedOp::kFossilize), Names{"slot"});
  EXPECT_EQ(heads_of(SeedOp::kAdvance), Names{"slot"});
  for (int op = 0; op < kNumSeedOps; ++op) EXPECT_TRUE(uses_head(static_cast<SeedOp>(op), Head::kOp));
}

TEST(Actions, LieSideBySideInTheOrderOfTheHeads) {
  const ActionSpace space{.num_slots = 3, .num_blueprints = 8};
  const std::vector<int64_t> sizes{6, 3, 8, 4, 3, 3, 4, 5};
  int64_t offset = 0;
  for (int i = 0; i < kNumHeads; ++i) {
    EXPECT_EQ(space.size(static_cast<Head>(i)), sizes[i]) << kHeadNames[i];
    EXPECT_EQ(space.offset(static_cast<Head>(i)), offset) << kHeadNames[i];
    offset += sizes[i];
  }
  EXPECT_EQ(space.num_choices(), 36);
}

TEST(Actions, BecomeGerminationsWithTheStylesOperatorAndCurve) {
  const SeedAction action = to_seed_action(Choice{1, 2, 5, 2, 1, 0, 3, 1});
  EXPECT_EQ(action.op, SeedOp::kGerminate);
  EXPECT_EQ(action.slot, 2);
  EXPECT_EQ(action.blueprint, 5);
  EXPECT_EQ(action.blend_operator, BlendOperator::kAdd);
  EXPECT_EQ(action.curve, BlendCurve::kSigmoid12);
  EXPECT_EQ(action.steps, 5);  // the tempo, not the speed
  EXPECT_EQ(action.target, 0.5f);
}

TEST(Actions, BecomeRetargetsWithTheCurveOfItsOwnHead) {
  const SeedAction action = to_seed_action(Choice{2, 1, 5, 3, 1, 1, 3, 4});
  EXPECT_EQ(action.op, SeedOp::kSetAmplitudeTarget);
  EXPECT_EQ(action.slot, 1);
  EXPECT_EQ(action.blueprint, kNoBlueprint);
  EXPECT_EQ(action.blend_operator, BlendOperator::kGate);
  EXPECT_EQ(action.curve, BlendCurve::kSigmoid24);
  EXPECT_EQ(action.steps, 8);
  EXPECT_EQ(action.target, 0.7f);
}

// Every combination of indices: what an op does not read changes nothing, what it reads changes something.
TEST(Actions, DependOnTheHeadsTheirOpUsesAlone) {
  const ActionSpace space{.num_slots = 2, .num_blueprints = 3};
  const auto same = [](const SeedAction& a, const SeedAction& b) {
    return a.op == b.op && a.slot == b.slot && a.blueprint == b.blueprint &&
           a.blend_operator == b.blend_operator && a.curve == b.curve && a.steps == b.steps &&
           a.target == b.target;
  };
  for (int op = 0; op < kNumSeedOps; ++op) {
    const Choice zero{op};
    for (int i = 1; i < kNumHeads; ++i) {
      const auto head = static_cast<Head>(i);
      bool changes = false;
      for (int64_t choice = 1; choice < space.size(head); ++choice) {
        Choice other = zero;
        other[i] = choice;
        changes = changes || !same(to_seed_action(zero), to_seed_action(other));
      }
      EXPECT_EQ(changes, uses_head(static_cast<SeedOp>(op), head)) << "op " << op << " " << kHeadNames[i];
    }
  }
}

}  // namespace
}  // namespace espalier::policy
