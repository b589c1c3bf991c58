#include "espalier/train/memory/plan.h"

#include <gtest/gtest.h>

#include <limits>

#include "espalier/core/error.h"
#include "espalier/tensor/layout.h"
#include "espalier/train/memory/allowances.h"
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

TEST(MemoryPlan, CountsPinnedMemoryOfTheHostApart) {
  MemoryPlan plan{.budget_bytes = 10};
  plan.add("data", 100, MemoryPlace::kHost);
  plan.add("weights", 6);
  plan.add("kernels", 4, MemoryPlace::kDriver);
  plan.add("nothing", 0);
  EXPECT_EQ(plan.parts.size(), 3u);
  EXPECT_EQ(plan.total_bytes(), 10);
  EXPECT_EQ(plan.bytes_in(MemoryPlace::kHost), 100);
  EXPECT_NO_THROW(check_fits(plan, ""));
  plan.budget_bytes = 9;
  try {
    check_fits(plan, "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("data"), std::string::npos) << error.what();
  }
}

TEST(MemoryPlan, AddsUpPartsOfOneName) {
  MemoryPlan one, other;
  one.add("weights", 3);
  other.add("weights", 4);
  other.add("weights", 5, MemoryPlace::kHost);
  one.add(other);
  ASSERT_EQ(one.parts.size(), 2u);
  EXPECT_EQ(one.parts[0].bytes, 7);
  EXPECT_EQ(one.parts[1].bytes, 5);
}

TEST(MemoryPlan, FindsTheLargestCountThatFits) {
  const auto bytes = [](int64_t n) { return 100 + 7 * n; };
  EXPECT_EQ(largest_fitting(bytes, 99, 1000), 0);
  EXPECT_EQ(largest_fitting(bytes, 107, 1000), 1);
  EXPECT_EQ(largest_fitting(bytes, 100 + 7 * 123 + 6, 1000), 123);
  EXPECT_EQ(largest_fitting(bytes, int64_t{1} << 40, 1000), 1000);
}

TEST(MemoryPlan, RoundsLanesUpAsStackedTensorsDo) {
  for (const int64_t values : {1, 63, 64, 65, 1000}) {
    const at::Tensor stacked =
        empty_stacked({3, 1, values, 1, 1}, MemoryFormat::kChannelsLast, at::TensorOptions(at::kFloat));
    EXPECT_EQ(stacked_bytes(3, {values}, 4), static_cast<int64_t>(stacked.storage().nbytes())) << values;
  }
}

TEST(MemoryPlan, TellsWhatNoMemoryHoldsAsMoreThanThereIs) {
  constexpr int64_t kHuge = int64_t{1} << 40, kMost = int64_t{1} << 48;
  EXPECT_EQ(stacked_bytes(3, {kHuge, kHuge}, 4), kMost);
  EXPECT_EQ(stacked_bytes(kHuge, {kHuge}, 4), kMost);
  EXPECT_EQ(bounded_bytes({kHuge, kHuge, 4}), kMost);
  MemoryPlan plan;
  for (int i = 0; i < 3; ++i) plan.add("part " + std::to_string(i), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(plan.total_bytes(), std::numeric_limits<int64_t>::max());
  plan.budget_bytes = 1;
  EXPECT_THROW(check_fits(plan, "lower it"), Error);
  EXPECT_ANY_THROW(plan.add("a product that wrapped around", -1));
}

TEST(StepParts, KnowGraphsAndWorkspacesOnAGpuAlone) {
  const StepNeeds cpu{.peak_bytes = 1000, .graph_bytes = 1500, .num_graphs = 3, .has_products = true};
  StepNeeds gpu = cpu;
  gpu.device = at::Device(at::kCUDA, 0);
  EXPECT_EQ(step_parts("a step", cpu).total_bytes(), 1000);
  const MemoryPlan with = step_parts("a step", gpu);
  gpu.graphs = false;
  const MemoryPlan without = step_parts("a step", gpu);
  EXPECT_EQ(with.bytes_in(MemoryPlace::kDriver) - without.bytes_in(MemoryPlace::kDriver),
            3 * allowance::kGraphBytes);
  EXPECT_EQ(without.bytes_in(MemoryPlace::kDriver), allowance::kCublasKernelsBytes);
  EXPECT_EQ(with.bytes_in(MemoryPlace::kDevice) - without.bytes_in(MemoryPlace::kDevice),
            1500 + allowance::kConvolutionWorkspaceBytes);
  EXPECT_EQ(without.bytes_in(MemoryPlace::kDevice),
            1000 + allowance::kConvolutionWorkspaceBytes + allowance::kRestsBesideWorkspacesBytes +
                allowance::kHandlesOfAStream * allowance::kCublasWorkspaceBytes);
  gpu.times_products = true;
  EXPECT_EQ(step_parts("a step", gpu).total_bytes() - without.total_bytes(),
            allowance::kHandlesOfAStream * allowance::kCublasWorkspaceBytes);
  EXPECT_EQ(device_parts(at::kCPU).total_bytes(), 0);
  EXPECT_GT(device_parts(gpu.device).bytes_in(MemoryPlace::kDriver), 0);
}

}  // namespace
}  // namespace espalier::train
