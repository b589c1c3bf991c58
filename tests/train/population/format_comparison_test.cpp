#include "espalier/train/population/format_comparison.h"

#include <gtest/gtest.h>

#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

TEST(FormatComparison, LeavesChannelsLastOutWhereThereIsNoRoomForIt) {
  PopulationConfig options = testing::small_options(2);
  options.host = "cifar_baseline";
  options.resident.memory_format = MemoryFormat::kContiguous;
  testing::OneShard trainer(options, testing::small_setup(options));
  const auto has_both = [&](int64_t budget_bytes) {
    const MemoryPlan plan{.parts = {{"data", 1000}}, .budget_bytes = budget_bytes};
    const FormatComparison compared = compare_formats(trainer, plan);
    EXPECT_GT(compared.step_ms, 0);
    return compared.channels_last_ms.has_value();
  };
  EXPECT_FALSE(has_both(1999));
  EXPECT_TRUE(has_both(2000));
  EXPECT_TRUE(has_both(0)) << "a CPU has no budget";
}

}  // namespace
}  // namespace espalier::train
