#include "espalier/train/memory_plan.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::train {
namespace {

TEST(MemoryPlan, SaysWhatIsNeededAndWhatIsFreeAndWhatToLower) {
  const MemoryPlan plan{.parts = {{"data", 3 << 20}, {"batch ring", 2 << 20}}, .budget_bytes = 4 << 20};
  EXPECT_ERROR(check_fits(plan, "lower --batch"), Error, "5.0 MiB", "data 3.0 MiB", "batch ring 2.0 MiB",
               "4.0 MiB", "lower --batch");
}

TEST(MemoryPlan, PassesWhatFitsAndWhatHasNoLimit) {
  EXPECT_NO_THROW(check_fits({.parts = {{"data", 10}}, .budget_bytes = 10}, ""));
  EXPECT_NO_THROW(check_fits({.parts = {{"data", 10}}, .budget_bytes = 0}, ""));
}

TEST(MemoryPlan, FindsTheLargestCountThatFits) {
  const auto bytes = [](int64_t n) { return 100 + 7 * n; };
  EXPECT_EQ(largest_fitting(bytes, 99, 1000), 0);
  EXPECT_EQ(largest_fitting(bytes, 107, 1000), 1);
  EXPECT_EQ(largest_fitting(bytes, 100 + 7 * 123 + 6, 1000), 123);
  EXPECT_EQ(largest_fitting(bytes, int64_t{1} << 40, 1000), 1000);
}

}  // namespace
}  // namespace espalier::train
