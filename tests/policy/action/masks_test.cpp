#include "espalier/policy/action/masks.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "tests/policy/num_seeds.h"
#include "tests/policy/tensors.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;
using Lanes = std::vector<std::vector<SlotState>>;

SlotFields fields_of(const Lanes& lanes) {
  const auto num_lanes = static_cast<int64_t>(lanes.size());
  const auto slots = static_cast<int64_t>(lanes[0].size());
  SlotFields fields;
  for (at::Tensor* field : {&fields.stage, &fields.flags, &fields.age_steps})
    *field = at::zeros({num_lanes, slots}, at::kLong);
  for (int64_t lane = 0; lane < num_lanes; ++lane) {
    for (int64_t slot = 0; slot < slots; ++slot) {
      const SlotState& state = lanes[lane][slot];
      fields.stage[lane][slot] = static_cast<int64_t>(state.stage);
      fields.flags[lane][slot] = static_cast<int64_t>(state.flags);
      fields.age_steps[lane][slot] = state.age_steps;
    }
  }
  fields.num_seeds = testing::num_seeds_of(fields.stage);
  return fields;
}

// The rules once more, slot by slot, in the words of the core.
bool may_name(const std::vector<SlotState>& lane, SeedOp op, size_t slot, bool enabled, int64_t max_seeds) {
  if (!may_choose(lane[slot], op)) return false;
  if (op != SeedOp::kGerminate) return true;
  int64_t seeds = 0;
  for (const SlotState& state : lane) {
    if (state.stage == SeedStage::kGerminated || state.stage == SeedStage::kTraining) return false;
    if (is_cleaning_up(state.stage)) return false;
    seeds += holds_seed(state.stage);
  }
  return enabled && seeds < max_seeds;
}

TEST(ActionMasks, FollowMayChooseSlotBySlotOverRandomStates) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto roll = [&](int most) { return static_cast<int>(random() % (most + 1u)); };
    const int64_t num_slots = 1 + roll(4), max_seeds = roll(4);
    const bool per_lane = roll(1) == 1, mostly_quiet = roll(1) == 1;
    Lanes lanes(7, std::vector<SlotState>(num_slots));
    at::Tensor enabled = at::zeros({7, num_slots}, at::kBool);
    for (int64_t lane = 0; lane < 7; ++lane) {
      for (int64_t slot = 0; slot < num_slots; ++slot) {
        SlotState& state = lanes[lane][slot];
        state.stage = static_cast<SeedStage>(roll(8));
        // Otherwise a lane where something may be planted would be rare.
        if (mostly_quiet && roll(3) > 0) state.stage = roll(1) ? SeedStage::kDormant : SeedStage::kHolding;
        state.flags = static_cast<uint8_t>(roll(3) | (roll(3) == 0 ? kSlotBarred : 0));
        state.age_steps = roll(2);
        enabled[lane][slot] = roll(3) > 0;
      }
    }
    if (!per_lane) enabled = enabled[0].clone();
    const ActionMasks masks =
        MaskRules({.num_slots = num_slots}, enabled, max_seeds).masks_of(fields_of(lanes));
    ASSERT_EQ(masks.op.sizes(), (std::vector<int64_t>{7, kNumSeedOps}));
    ASSERT_EQ(masks.slot.sizes(), (std::vector<int64_t>{7, kNumSeedOps, num_slots}));
    for (int64_t lane = 0; lane < 7; ++lane) {
      for (int64_t op = 0; op < kNumSeedOps; ++op) {
        bool any = false;
        for (int64_t slot = 0; slot < num_slots; ++slot) {
          const bool on = (per_lane ? enabled[lane][slot] : enabled[slot]).item<bool>();
          const bool want = may_name(lanes[lane], static_cast<SeedOp>(op), slot, on, max_seeds);
          EXPECT_EQ(masks.slot[lane][op][slot].item<bool>(), want)
              << "lane " << lane << " op " << op << " slot " << slot;
          any = any || want;
        }
        EXPECT_EQ(masks.op[lane][op].item<bool>(), any || op == 0) << "lane " << lane << " op " << op;
      }
      EXPECT_FALSE(masks.illegal_state[lane].item<bool>());
    }
  }
}

TEST(ActionMasks, AllowWaitInEveryStage) {
  for (int stage = 0; stage < kNumSeedStages; ++stage) {
    const ActionMasks masks = MaskRules({.num_slots = 1}, at::ones({1}, at::kBool), 1)
                                  .masks_of(fields_of({{{.stage = static_cast<SeedStage>(stage)}}}));
    EXPECT_TRUE(masks.op[0][0].item<bool>()) << stage;
  }
}

TEST(ActionMasks, LetAFullLanePlantNothing) {
  const Lanes lanes{{{.stage = SeedStage::kFossilized}, {.stage = SeedStage::kDormant}}};
  const at::Tensor enabled = at::ones({2}, at::kBool);
  EXPECT_FALSE(MaskRules({.num_slots = 2}, enabled, 1).masks_of(fields_of(lanes)).op[0][1].item<bool>());
  EXPECT_TRUE(MaskRules({.num_slots = 2}, enabled, 2).masks_of(fields_of(lanes)).op[0][1].item<bool>());
}

TEST(ActionMasks, LeaveAFrozenLaneNothingButWait) {
  SlotFields fields = fields_of({{{}, {}}, {{}, {}}});
  fields.frozen = bools({0, 1});
  const ActionMasks masks = MaskRules({.num_slots = 2}, at::ones({2}, at::kBool), 2).masks_of(fields);
  EXPECT_TRUE(masks.op[0][1].item<bool>());
  EXPECT_TRUE(at::equal(masks.op[1], bools({1, 0, 0, 0, 0, 0})));
  EXPECT_FALSE(masks.slot[1].slice(0, 1).any().item<bool>());
  EXPECT_FALSE(masks.illegal_state.any().item<bool>());
}

TEST(ActionMasks, FlagALaneWhoseStageIsNoneOfThem) {
  for (const int64_t stage : {-3, 9, 200}) {
    SlotFields fields = fields_of({{{}, {}}, {{}, {}}, {{}, {}}});
    fields.stage[1][1] = stage;
    const ActionMasks masks = MaskRules({.num_slots = 2}, at::ones({2}, at::kBool), 2).masks_of(fields);
    EXPECT_TRUE(at::equal(masks.illegal_state, bools({0, 1, 0}))) << stage;
    EXPECT_FALSE(masks.slot[1].any().item<bool>()) << stage;
  }
}

TEST(ActionMasks, NeverOfferNoop) {
  const MaskRules rules({.num_slots = 1, .num_blueprints = 4}, at::ones({1}, at::kBool), 1);
  EXPECT_TRUE(at::equal(rules.blueprints(), bools({0, 1, 1, 1})));
}

TEST(ActionMasks, NameTheArgumentThatDoesNotFit) {
  EXPECT_ERROR(MaskRules({.num_slots = 2}, at::ones({3}, at::kBool), 1), c10::Error, "enabled_slots", "[3]");
  EXPECT_ERROR(MaskRules({.num_slots = 2}, at::ones({2}, at::kBool), -1), c10::Error, "max_seeds", "-1");
  EXPECT_ERROR(MaskRules({.num_slots = 2, .num_blueprints = 1}, at::ones({2}, at::kBool), 1), c10::Error,
               "num_blueprints", "1");
  SlotFields fields = fields_of({{{}, {}}});
  fields.flags = at::zeros({1, 3}, at::kLong);
  EXPECT_ERROR(MaskRules({.num_slots = 2}, at::ones({2}, at::kBool), 1).masks_of(fields), c10::Error, "flags",
               "[1, 3]");
}

}  // namespace
}  // namespace espalier::policy
