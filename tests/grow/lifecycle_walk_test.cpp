// Random walks over the lifecycle: what holds after every operation, whatever came before.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "tests/grow/grown.h"

namespace espalier::grow {
namespace {

using namespace testing;

// Any op on any slot, every field at random, and now and then out of range.
SeedAction any_action(std::mt19937& random) {
  const auto below = [&random](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  constexpr std::array<int32_t, 4> kSteps{0, 3, 5, 8};
  constexpr std::array<float, 3> kTargets{0.5f, 0.7f, 1.0f};
  return {.op = static_cast<SeedOp>(below(kNumSeedOps)),
          .slot = below(3),
          .blueprint = below(20) == 0 ? 8 : below(8),
          .blend_operator = static_cast<BlendOperator>(below(kNumBlendOperators)),
          .curve = static_cast<BlendCurve>(below(kNumBlendCurves)),
          .steps = kSteps[static_cast<size_t>(below(4))],
          .target = kTargets[static_cast<size_t>(below(3))]};
}

SeedMeasurements any_measurement(std::mt19937& random) {
  SeedMeasurements measured = healthy();
  const unsigned kind = random() % 8;
  if (kind == 0) measured.finite = false;
  if (kind == 1) measured.gradient_norm.reset();
  if (kind == 2) measured.contribution_points = -1;
  return measured;
}

// Stages that a slot of the lane went through, and states on the way, must be those of the design.
void expect_sound_change(const SlotState& before, const SlotState& after) {
  ASSERT_EQ(fault_in(after), std::nullopt);
  if (before.stage != after.stage) {
    ASSERT_TRUE(may_follow(before.stage, after.stage))
        << name_of(before.stage) << " " << name_of(after.stage);
  }
  ASSERT_TRUE(after.num_seeds == before.num_seeds || after.num_seeds == before.num_seeds + 1);
}

TEST(LifecycleWalk, KeepsEveryInvariant) {
  std::set<std::pair<SeedStage, SeedStage>> seen;
  int64_t refused = 0, failed = 0, passed = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    LifecycleOptions options = small_options(4);
    options.embargo_steps = 1 + static_cast<int32_t>(seed % 6);
    if (seed % 2 == 1) options.gates.mode = GateMode::kStrict;
    Lifecycle life(options);
    for (int step = 0; step < 1500; ++step) {
      const auto before = copy_of(life.states());
      const auto lane = static_cast<int64_t>(random() % 4);
      if (random() % 4 == 0) {
        const auto moves = life.begin_epoch();
        size_t num_moved = 0;
        for (size_t i = 0; i < before.size(); ++i) num_moved += before[i].stage != life.states()[i].stage;
        ASSERT_EQ(moves.size(), num_moved);
      } else {
        const SeedAction action = any_action(random);
        const SlotState asked = life.at(lane, action.slot);
        try {
          const GateReport report = life.act(lane, action, any_measurement(random));
          (report.passed() ? passed : failed) += 1;
          if (!report.passed()) {
            ASSERT_TRUE(same_bytes(life.states(), before));
          }
        } catch (const UsageError& error) {
          refused += 1;
          ASSERT_FALSE(may_choose(asked, action.op)) << "a mask allows what is refused: " << error.what();
          ASSERT_TRUE(same_bytes(life.states(), before));
        }
        // Only the slot that was asked may have changed.
        for (int64_t l = 0; l < 4; ++l)
          for (int64_t s = 0; s < 3; ++s)
            if (l != lane || s != action.slot) {
              ASSERT_TRUE(same_bytes({&life.at(l, s), 1}, {&before[static_cast<size_t>(l * 3 + s)], 1}));
            }
      }
      for (size_t i = 0; i < before.size(); ++i) {
        ASSERT_NO_FATAL_FAILURE(expect_sound_change(before[i], life.states()[i]));
        if (before[i].stage != life.states()[i].stage) seen.insert({before[i].stage, life.states()[i].stage});
      }
    }
  }
  // The walk is worth something only if it went everywhere.
  for (int from = 0; from < kNumSeedStages; ++from)
    for (int to = 0; to < kNumSeedStages; ++to) {
      const std::pair move{static_cast<SeedStage>(from), static_cast<SeedStage>(to)};
      EXPECT_EQ(seen.contains(move), may_follow(move.first, move.second))
          << name_of(move.first) << " " << name_of(move.second);
    }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(failed, 1000);
  EXPECT_GT(passed, 1000);
}

// An amplitude moves in begin_epoch() alone, towards its target, unless it was told to be there at once.
TEST(LifecycleWalk, MovesAmplitudesTowardsTheirTargetsOnly) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Lifecycle life(small_options());
    for (int step = 0; step < 1500; ++step) {
      const SlotState before = life.at(0, 0);
      life.begin_epoch();
      const SlotState after = life.at(0, 0);
      if (holds_seed(after.stage)) {
        const float low = std::min(before.amplitude, before.target);
        const float high = std::max(before.amplitude, before.target);
        ASSERT_TRUE(after.amplitude >= low && after.amplitude <= high);
        if (!is_ramping(before)) {
          ASSERT_EQ(after.amplitude, before.amplitude);
        }
      } else {
        ASSERT_EQ(after.amplitude, 0.0f);
      }
      SeedAction action = any_action(random);
      action.slot = 0;
      if (may_choose(life.at(0, 0), action.op) && random() % 3 == 0) {
        life.act(0, action, healthy());
        if (action.steps > 0 && life.at(0, 0).stage != SeedStage::kPruned) {
          const bool snaps = after.ramp_steps == 0 && after.stage == SeedStage::kTraining;
          ASSERT_TRUE(snaps || life.at(0, 0).amplitude == after.amplitude);
        }
      }
    }
  }
}

TEST(LifecycleWalk, GivesALaneTheSameBytesAloneAndAmongOthers) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed), others(seed + 1000);
    Lifecycle alone(small_options(1)), among(small_options(7));
    const auto act = [](Lifecycle& life, int64_t lane, const SeedAction& action) {
      try {
        life.act(lane, action, healthy());
      } catch (const UsageError&) {
      }
    };
    for (int step = 0; step < 1000; ++step) {
      const SeedAction action = any_action(random);
      act(alone, 0, action);
      for (int64_t lane = 0; lane < 7; ++lane) act(among, lane, lane == 4 ? action : any_action(others));
      ASSERT_TRUE(same_bytes(alone.lane_states(0), among.lane_states(4)));
      if (random() % 3 == 0) {
        alone.begin_epoch();
        among.begin_epoch();
        ASSERT_TRUE(same_bytes(alone.lane_states(0), among.lane_states(4)));
      }
      if (random() % 100 == 0) among.reset_lane(static_cast<int64_t>(others() % 4));
    }
  }
}

// Saved in the middle and put back into a fresh lifecycle, it goes on as if nothing had happened.
TEST(LifecycleWalk, GoesOnFromARestoredStateAsFromItsOwn) {
  std::mt19937 random(7);
  Lifecycle life(small_options());
  for (int step = 0; step < 2000; ++step) {
    Lifecycle resumed(small_options());
    resumed.restore_lane(0, life.lane_states(0));
    const SeedAction action = any_action(random);
    for (Lifecycle* each : {&life, &resumed}) {
      if (may_choose(each->at(0, action.slot), action.op)) each->act(0, action, healthy());
      each->begin_epoch();
    }
    ASSERT_TRUE(same_bytes(life.states(), resumed.states()));
  }
}

}  // namespace
}  // namespace espalier::grow
