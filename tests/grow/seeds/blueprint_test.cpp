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

TEST(BlueprintRegistry, HasWhatTheProcessHasAndKeepsItsOwnToItself) {
  const BlueprintRegistry as_it_was = blueprints();
  Blueprint mine = blueprints().at(0);
  mine.name = "mine";
  EXPECT_EQ(blueprints().add(mine), 8);
  BlueprintRegistry later;
  EXPECT_EQ(later.index_of("mine"), 8);
  EXPECT_EQ(as_it_was.size(), 8) << "a copy from before";
  mine.name = "of one job";
  EXPECT_EQ(later.add(mine), 9);
  EXPECT_EQ(blueprints().size(), 9);
  blueprints() = as_it_was;
  EXPECT_EQ(BlueprintRegistry().size(), 8);
}

// What rules and the plan of memory know of each kind, by number: 32 channels.
TEST(Blueprint, SaysWhenRulesTryItAndWhatASeedHolds) {
  struct Said {
    int32_t preference;
    double held;
  };
  const std::vector<Said> want{
      {Blueprint::kTriedLast, 1}, {5, 3}, {2, 2}, {3, 4}, {4, 3.5}, {6, 3}, {1, 3}, {7, 5}};
  const BlueprintRegistry registry;
  for (int32_t kind = 0; kind < registry.size(); ++kind) {
    const Blueprint& blueprint = registry.at(kind);
    const Said& said = want[static_cast<size_t>(kind)];
    const SeedShape shape{.channels = 32, .height = 4, .width = 4};
    EXPECT_EQ(blueprint.preference, said.preference) << blueprint.name;
    for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kCUDA)})
      EXPECT_EQ(blueprint.held(shape, device), said.held) << blueprint.name << " on " << device;
  }
}

TEST(Blueprint, ChoosesGroupsOfSixteenChannelsWhereItCan) {
  const std::vector<std::pair<int64_t, int64_t>> want{{512, 32}, {1024, 32}, {256, 16}, {128, 8}, {64, 4},
                                                      {32, 2},   {48, 2},    {16, 1},   {24, 1},  {8, 8},
                                                      {12, 4},   {6, 2},     {7, 1},    {1, 1},   {96, 4}};
  for (const auto& [channels, groups] : want) EXPECT_EQ(group_norm_groups(channels), groups) << channels;
}

}  // namespace
}  // namespace espalier::grow
