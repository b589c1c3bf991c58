#include "espalier/grow/seeds/blueprint.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

TEST(BlueprintRegistry, NumbersTheBuiltInOnes) {
  const BlueprintRegistry registry;
  EXPECT_EQ(registry.names(),
            (std::vector<std::string>{"noop", "norm", "attention", "depthwise", "bottleneck", "conv_small",
                                      "conv_light", "conv_heavy"}));
  EXPECT_EQ(registry.index_of("conv_light"), 6);
  EXPECT_EQ(registry.at(6).name, "conv_light");
  EXPECT_ERROR(registry.index_of("conv"), UsageError, "'conv'", "noop", "conv_heavy");
  EXPECT_ERROR(registry.at(8), UsageError, "0 to 7", "8");
  EXPECT_ERROR(registry.at(-1), UsageError, "-1");
}

TEST(BlueprintRegistry, TakesAUsersOwnUnderAFreeName) {
  BlueprintRegistry registry;
  Blueprint mine = registry.at(0);
  mine.name = "mine";
  EXPECT_EQ(registry.add(mine), 8);
  EXPECT_EQ(registry.index_of("mine"), 8);
  EXPECT_ERROR(registry.add(mine), UsageError, "'mine'", "taken");
  EXPECT_ERROR(registry.add({.name = "half"}), UsageError, "'half'", "incomplete");
  EXPECT_EQ(registry.size(), 9);
}

TEST(Blueprint, ChoosesGroupsOfSixteenChannelsWhereItCan) {
  const std::vector<std::pair<int64_t, int64_t>> want{{512, 32}, {1024, 32}, {256, 16}, {128, 8}, {64, 4},
                                                      {32, 2},   {48, 2},    {16, 1},   {24, 1},  {8, 8},
                                                      {12, 4},   {6, 2},     {7, 1},    {1, 1},   {96, 4}};
  for (const auto& [channels, groups] : want) EXPECT_EQ(group_norm_groups(channels), groups) << channels;
}

}  // namespace
}  // namespace espalier::grow
