#include "bench/host_floor.h"

#include <gtest/gtest.h>

namespace espalier::bench {
namespace {

// Values per network and image, worked out by hand. Blocks read 3 x 32 x 32 and write 8 x 32 x 32, then 8 x
// 16 x 16 and 16 x 16 x 16, then 16 x 8 x 8 and 32 x 8 x 8; what is pooled is a quarter of what was written.
TEST(HostFloor, CountsWhatLayersReadAndWrite) {
  const MachineRates copies{.copy_bytes_per_us = 1, .product_flops_per_us = 1e300};
  EXPECT_DOUBLE_EQ(step_floor_us({.base = 8}, 1, copies), 69632 + 41984 + 20992);
  EXPECT_DOUBLE_EQ(scoring_floor_us({.base = 8}, 1, copies), 21504 + 11264 + 5632);
  EXPECT_DOUBLE_EQ(step_floor_us({.lanes = 3, .samples = 5, .base = 8}, 2, copies), 3 * 5 * 2 * 132608.0);
  // What docs/benchmarks.md says of 128 networks of batch 64 at 4.3 TB/s.
  EXPECT_NEAR(step_floor_us({128, 64, 8}, 2, {.copy_bytes_per_us = 4.3e6, .product_flops_per_us = 1e300}),
              505, 1);
}

TEST(HostFloor, TakesAsLongAsProductsWhereTheseTakeLonger) {
  const MachineRates products{.copy_bytes_per_us = 1e300, .product_flops_per_us = 1};
  EXPECT_DOUBLE_EQ(scoring_floor_us({.base = 8}, 1, products), 442368 + 589824 + 589824);
  EXPECT_DOUBLE_EQ(step_floor_us({.base = 8}, 1, products), 2 * 442368 + 3 * (589824 + 589824));
}

}  // namespace
}  // namespace espalier::bench
