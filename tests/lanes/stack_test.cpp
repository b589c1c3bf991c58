#include "espalier/lanes/stack.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/lanes/most_lanes.h"
#include "espalier/lanes/parameter.h"
#include "espalier/tensor/layout.h"
#include "tests/support/message.h"
#include "tests/support/stacked_layout.h"

namespace espalier::lanes {
namespace {

TEST(LaneTensor, StartsEveryLaneOnABoundary) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{3}, {3, 5}, {2, 7, 3}, {4, 2, 3, 5, 1}, {0, 4}, {3, 1, 1, 1, 1}}) {
      const at::Tensor lanes = empty_lanes(sizes, type);
      ASSERT_EQ(lanes.sizes(), at::IntArrayRef(sizes));
      EXPECT_EQ(lanes.stride(0) * static_cast<int64_t>(lanes.element_size()) % kLaneAlignmentBytes, 0);
      EXPECT_TRUE(sizes.size() == 5 || sizes[0] == 0 || lanes.select(0, 0).is_contiguous());
      EXPECT_TRUE(sizes.size() != 5 || support::is_stacked_channels_last(lanes));
      EXPECT_EQ(lanes.storage().use_count(), 1) << "a view: nobody could tell that the memory is his own";
    }
  }
}

// Before anything is allocated: here, where there may be no such device.
TEST(LaneTensor, RefusesMoreLanesThanADeviceTakes) {
  const at::TensorOptions cuda = at::TensorOptions(at::kFloat).device(at::kCUDA, 0);
  EXPECT_ERROR(empty_lanes({kMostLanesOnCuda + 1, 2}, cuda), c10::Error, "lanes", "65535", "65536",
               "more devices");
  EXPECT_ERROR(LaneParameter({70000, 8, 3, 3, 3}, cuda, at::kFloat), c10::Error, "70000");
  EXPECT_EQ(empty_lanes({kMostLanesOnCuda + 1}, at::kFloat).size(0), kMostLanesOnCuda + 1) << "on the CPU";
}

TEST(LaneTensor, TellsHowLanesLie) {
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
    for (const int64_t channels : {1, 3}) {
      EXPECT_EQ(format_of(empty_lanes({2, 3, channels, 4, 5}, at::kFloat, format)), format);
      EXPECT_EQ(format_of(empty_lanes({0, 3, channels, 4, 5}, at::kFloat, MemoryFormat::kChannelsLast)),
                MemoryFormat::kChannelsLast);
    }
}

}  // namespace
}  // namespace espalier::lanes
