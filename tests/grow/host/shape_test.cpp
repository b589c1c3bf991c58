#include "espalier/grow/host/shape.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "espalier/grow/host/registry.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

std::vector<std::string> names(const std::vector<SlotSpec>& slots) {
  std::vector<std::string> names;
  for (const SlotSpec& slot : slots) names.push_back(slot.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(HostShape, NumbersActionsRowByRow) {
  EXPECT_EQ(names(slots_by_action({})), (Names{"r0c0", "r0c1", "r0c2", "r1c0", "r1c1", "r1c2"}));
  EXPECT_EQ(names(slots_by_action({.n_blocks = 4, .pool_layers = 2})),
            (Names{"r0c0", "r0c1", "r0c2", "r0c3", "r1c0", "r1c1"}));
}

TEST(HostShape, ExecutesSlotsBlockByBlock) {
  EXPECT_EQ(names(slots_by_execution({})), (Names{"r0c0", "r1c0", "r0c1", "r1c1", "r0c2", "r1c2"}));
  EXPECT_EQ(names(slots_by_execution({.n_blocks = 4, .pool_layers = 2})),
            (Names{"r0c0", "r1c0", "r0c1", "r1c1", "r0c2", "r0c3"}));
  EXPECT_EQ(names(slots_by_execution({.n_blocks = 2, .pool_layers = 0})), (Names{"r0c0", "r0c1"}));
}

TEST(HostShape, GivesSlotsTheSizesBeforeAndAfterPooling) {
  const auto slots = slots_by_execution({.height = 13, .width = 8, .base_channels = 8, .pool_layers = 2});
  ASSERT_EQ(slots.size(), 5u);
  const std::vector<std::vector<int64_t>> want{{8, 13, 8}, {8, 6, 4}, {16, 6, 4}, {16, 3, 2}, {32, 3, 2}};
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ((std::vector<int64_t>{slots[i].channels, slots[i].height, slots[i].width}), want[i])
        << slots[i].name;
  EXPECT_EQ(slots[3].row, 1);
  EXPECT_EQ(slots[3].column, 1);
}

TEST(HostShape, KnowsItsPresets) {
  const auto shape = [](const char* name) {
    const CnnHostOptions options = hosts().at(name).cnn.value();
    return std::vector<int64_t>{options.base_channels, options.n_blocks, num_pooled(options)};
  };
  EXPECT_EQ(shape("tiny"), (std::vector<int64_t>{8, 2, 2}));
  EXPECT_EQ(shape("tiny_wide"), (std::vector<int64_t>{16, 2, 2}));
  EXPECT_EQ(shape("cifar_baseline"), (std::vector<int64_t>{8, 3, 3}));
  EXPECT_EQ(shape("cifar_scale"), (std::vector<int64_t>{8, 5, 5}));
  EXPECT_EQ(shape("cifar_wide"), (std::vector<int64_t>{32, 3, 3}));
  EXPECT_EQ(shape("cifar_deep"), (std::vector<int64_t>{32, 5, 3}));
  for (const std::string_view name : hosts().names())  // other tests may have added hosts of their own
    if (const auto& preset = hosts().at(name).cnn) {
      EXPECT_NO_THROW(check_host(*preset)) << name;
    }
  EXPECT_ERROR(hosts().at("cifar_huge"), UsageError, "host", "cifar_baseline", "cifar_deep", "'cifar_huge'");
}

TEST(HostShape, CountsParametersByHand) {
  // 3 to 8 channels, 8 to 16, 16 to 32, each with two norm vectors; then 32 to 10 with a bias.
  EXPECT_EQ(num_parameters(hosts().at("cifar_baseline").cnn.value()),
            9 * (3 * 8 + 8 * 16 + 16 * 32) + 2 * (8 + 16 + 32) + 32 * 10 + 10);
}

TEST(HostShape, RefusesPoolingBelowOnePixel) {
  EXPECT_NO_THROW(check_host({.height = 32, .width = 32, .n_blocks = 5}));
  EXPECT_ERROR(check_host({.height = 32, .width = 32, .n_blocks = 6}), UsageError, "pool_layers", "6",
               "32 x 32", "at most 5");
  EXPECT_NO_THROW(check_host({.height = 32, .width = 32, .n_blocks = 6, .pool_layers = 5}));
  EXPECT_ERROR(check_host({.height = 32, .width = 7, .n_blocks = 3}), UsageError, "32 x 7", "at most 2",
               "larger images", "--host");
}

TEST(HostShape, RefusesATrainingBatchThatLeavesANormASingleValue) {
  // 8 x 8 pixels halved three times: the fourth block has 1 x 1.
  CnnHostOptions options{.height = 8, .width = 8, .n_blocks = 4, .base_channels = 2, .pool_layers = 3};
  EXPECT_ERROR(check_training(options, 1, "--batch"), UsageError, "--batch 1", "block3",
               "single value per channel", "1 x 1", "at least 2");
  EXPECT_NO_THROW(check_training(options, 2, "--batch"));
  options.pool_layers = 2;
  EXPECT_NO_THROW(check_training(options, 1, "--batch"));
  options.n_blocks = 3;
  options.pool_layers = 3;  // 1 x 1 behind the last norm
  EXPECT_NO_THROW(check_training(options, 1, "--batch"));
}

TEST(HostShape, RefusesWhatNoHostCanHave) {
  EXPECT_ERROR(check_host({.n_blocks = 1}), UsageError, "n_blocks", "at least 2", "1");
  EXPECT_ERROR(check_host({.lanes = 0}), UsageError, "lanes", "at least 1", "0");
  EXPECT_ERROR(check_host({.pool_layers = 4}), UsageError, "pool_layers", "3 blocks", "4");
  EXPECT_ERROR(check_host({.kernel_size = 4}), UsageError, "kernel_size", "odd", "4");
  EXPECT_ERROR(check_host({.n_blocks = 64, .pool_layers = 0}), UsageError, "base_channels", "63 times");
  EXPECT_ERROR(slots_by_action({.base_channels = 0}), UsageError, "base_channels");
}

}  // namespace
}  // namespace espalier::grow
