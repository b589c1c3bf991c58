#include "espalier/train/step/data_parallel.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/support/thread_ranks.h"

namespace espalier::train {
namespace {

using espalier::testing::as_ranks;

TEST(DataParallel, HasEqualPartsAndRefusesABatchThatDoesNotDivide) {
  EXPECT_EQ(part_of_batch(7, ranks::World::alone()), 7);
  as_ranks(3, [](ranks::World& world) {
    EXPECT_EQ(part_of_batch(12, world), 4);
    EXPECT_ERROR(part_of_batch(10, world), UsageError, "--batch 10", "3 ranks", "multiple of 3", "12");
    EXPECT_ERROR(part_of_batch(2, world), UsageError, "--batch 2", "such as 3");
  });
}

TEST(DataParallel, ScoresEveryBatchAtOneRank) {
  for (const int size : {1, 2, 3, 4})
    for (const int64_t batches : {0, 1, 2, 3, 7, 8}) {
      std::vector<BatchRange> ranges(static_cast<size_t>(size));
      as_ranks(size, [&](ranks::World& world) {
        ranges[static_cast<size_t>(world.rank())] = own_batches(batches, world);
      });
      int64_t next = 0;
      for (const BatchRange& range : ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.end - range.begin, batches / size);
        EXPECT_LE(range.end - range.begin, batches / size + 1);
        next = range.end;
      }
      EXPECT_EQ(next, batches);
    }
}

TEST(DataParallel, MakesValuesAndTheirComputeCopiesThoseOfRank0) {
  as_ranks(2, [](ranks::World& world) {
    lanes::LaneParameter weight({1, 4, 3, 2, 2}, at::TensorOptions(at::kFloat), at::kBFloat16);
    const at::Tensor buffer = at::full({1, 4}, static_cast<double>(world.rank()));
    weight.storage().fill_(1.5 + static_cast<double>(world.rank()));
    weight.refresh();
    share_network(world, {{"weight", &weight}}, {buffer});
    EXPECT_TRUE(at::equal(weight.value(), at::full_like(weight.value(), 1.5)));
    EXPECT_TRUE(at::equal(weight.compute(), at::full_like(weight.compute(), 1.5)));
    EXPECT_TRUE(at::equal(buffer, at::zeros_like(buffer)));
  });
}

}  // namespace
}  // namespace espalier::train
