#include "espalier/ranks/world.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/message.h"
#include "tests/support/thread_ranks.h"

namespace espalier::ranks {
namespace {

using testing::as_ranks;

TEST(WorldTensors, AreAddedUpAtOnceOrWhileOtherWorkIsDone) {
  as_ranks(3, [](World& world) {
    const at::Tensor values = at::full({2, 3}, static_cast<double>(world.rank() + 1), at::kDouble);
    world.sum_(values);
    EXPECT_TRUE(at::equal(values, at::full({2, 3}, 6.0, at::kDouble)));
    const at::Tensor first = at::ones({4}), second = at::ones({5});
    const auto wait_for_first = world.begin_sum_(first), wait_for_second = world.begin_sum_(second);
    wait_for_second();
    wait_for_first();
    EXPECT_TRUE(at::equal(first, at::full({4}, 3.0f)));
    EXPECT_TRUE(at::equal(second, at::full({5}, 3.0f)));
    // Twice round a ring of three, sent and received: 4 * 2/3 of each tensor.
    EXPECT_EQ(world.bytes_moved(), 4 * 48 * 2 / 3 + 4 * 16 * 2 / 3 + 4 * 20 * 2 / 3);
    world.sum_(at::empty({0}));
  });
}

TEST(WorldTensors, BecomeThoseOfRankZero) {
  as_ranks(2, [](World& world) {
    const at::Tensor values = at::full({3}, 5 + world.rank(), at::kLong);
    world.broadcast_(values);
    EXPECT_TRUE(at::equal(values, at::full({3}, 5, at::kLong)));
  });
}

TEST(WorldTensors, AreRefusedWhereTheyAreNotDense) {
  as_ranks(
      2, [](World& world) { EXPECT_ERROR(world.sum_(at::ones({2, 2}).t()), c10::Error, "World", "dense"); });
}

TEST(WorldTensors, OfAGroupOfOneTravelAndStayAsTheyAre) {
  as_ranks(1, [](World& world) {
    EXPECT_FALSE(world.is_alone());
    EXPECT_TRUE(world.leads());
    const at::Tensor values = at::full({3}, 7, at::kLong);
    world.sum_(values);
    world.broadcast_(values);
    EXPECT_TRUE(at::equal(values, at::full({3}, 7, at::kLong)));
    EXPECT_EQ(world.largest(5), 5);
    EXPECT_EQ(world.gather(std::string_view("own")), std::vector<std::string>{"own"});
    EXPECT_GT(world.bytes_moved(), 0) << "nothing travelled";
    world.finish();
  });
}

// NCCL knows no limit of a single operation.
TEST(World, LetsTheBackendOfGpusWaitForAsLongAsARankMayTake) {
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  const auto backend =
      c10::make_intrusive<testing::ThreadBackend>(std::make_shared<testing::Meeting>(1), 0, 1);
  for (const auto device : {c10::DeviceType::CPU, c10::DeviceType::CUDA})
    group->setBackend(device, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  c10d::register_process_group("with a GPU", group);
  World(Membership{.group = "with a GPU", .store_address = "memory"}).finish();
  c10d::unregister_process_group("with a GPU");
  EXPECT_GE(backend->timeout(), std::chrono::hours(24));
}

TEST(WorldTensors, OfOneRankStayAsTheyAre) {
  const at::Tensor values = at::ones({2});
  World::alone().sum_(values);
  World::alone().begin_sum_(values)();
  World::alone().broadcast_(values);
  EXPECT_TRUE(at::equal(values, at::ones({2})));
  EXPECT_EQ(World::alone().bytes_moved(), 0);
}

}  // namespace
}  // namespace espalier::ranks
