#include "espalier/core/lane_outcome.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace espalier {
namespace {

TEST(LaneOutcome, HasANameForEveryVerdictAndOutcome) {
  std::set<std::string> names{"?"};
  for (int number = 0; number < kNumVerdicts; ++number)
    EXPECT_TRUE(names.insert(name_of(static_cast<Verdict>(number))).second) << number;
  EXPECT_STREQ(name_of(static_cast<Verdict>(kNumVerdicts)), "?");
  EXPECT_STREQ(name_of(LaneOutcome::kTrained), "trained");
  EXPECT_STREQ(name_of(LaneOutcome::kRolledBack), "rolled_back");
  EXPECT_STREQ(name_of(LaneOutcome::kRetired), "retired");
}

TEST(LaneOutcome, CallsEveryVerdictButSoundAndDoubtfulACollapse) {
  for (const char* name : {"not_finite", "loss_jumped", "guessing"}) EXPECT_TRUE(is_collapse(name)) << name;
  for (const char* name : {"sound", "doubtful", "", "?", "loss_jump", "not_finite "})
    EXPECT_FALSE(is_collapse(name)) << name;
}

}  // namespace
}  // namespace espalier
