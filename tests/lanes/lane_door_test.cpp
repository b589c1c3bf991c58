#include "espalier/lanes/lane_door.h"

#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/lanes/lane_tensor.h"
#include "tests/lanes/lane_compare.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

constexpr int64_t kSizes[] = {3, 6, 5};

LaneDoor make_door(MemoryFormat format = MemoryFormat::kChannelsLast) {
  return LaneDoor("host: x", format, at::kFloat, at::kCPU);
}

at::Tensor images(MemoryFormat format, at::ScalarType type = at::kFloat) {
  const at::Tensor x = empty_lanes({2, 4, 3, 6, 5}, at::TensorOptions(type), format);
  return x.copy_(at::randn(x.sizes()));
}

// Collects what c10 warns about while it lives.
class Warnings : public c10::WarningHandler {
 public:
  Warnings() : guard_(this) {}
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

TEST(LaneDoor, LetsAChannelsLastTensorPassWithNoWork) {
  LaneDoor door = make_door();
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  EXPECT_TRUE(door.enter(x, kSizes, 2).is_same(x));
  EXPECT_EQ(door.num_conversions(), 0);
}

TEST(LaneDoor, LetsLanesThatShareMemoryPass) {
  LaneDoor door = make_door();
  const at::Tensor x = images(MemoryFormat::kChannelsLast).select(0, 0).unsqueeze(0).expand({2, 4, 3, 6, 5});
  EXPECT_TRUE(door.enter(x, kSizes, 2).is_same(x));
}

TEST(LaneDoor, ConvertsAForeignLayoutOnce) {
  LaneDoor door = make_door();
  const at::Tensor x = at::randn({2, 4, 3, 6, 5});
  const at::Tensor in = door.enter(x, kSizes, 2);
  EXPECT_TRUE(at::equal(in, x));
  EXPECT_EQ(in.strides(), empty_lanes(x.sizes(), x.options()).strides());
  EXPECT_EQ(door.num_conversions(), 1);
  EXPECT_TRUE(door.enter(in, kSizes, 2).is_same(in));
  EXPECT_EQ(door.num_conversions(), 1);
}

TEST(LaneDoor, ConvertsAForeignType) {
  LaneDoor door = make_door();
  const at::Tensor x = images(MemoryFormat::kChannelsLast, at::kDouble);
  const at::Tensor in = door.enter(x, kSizes, 2);
  EXPECT_EQ(in.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(in, x.to(at::kFloat)));
  EXPECT_EQ(door.num_conversions(), 1);
}

TEST(LaneDoor, WantsContiguousLanesWhereTheNetworkIsContiguous) {
  LaneDoor door = make_door(MemoryFormat::kContiguous);
  const at::Tensor x = images(MemoryFormat::kContiguous), foreign = images(MemoryFormat::kChannelsLast);
  EXPECT_TRUE(door.enter(x, kSizes, 2).is_same(x));
  EXPECT_EQ(format_of(door.enter(foreign, kSizes, 2)), MemoryFormat::kContiguous);
  EXPECT_EQ(door.num_conversions(), 1);
}

TEST(LaneDoor, WarnsOnceAboutAStepThatConvertsEveryTime) {
  Warnings warnings;
  LaneDoor door = make_door();
  const at::Tensor foreign = at::randn({2, 4, 3, 6, 5});
  door.enter(foreign, kSizes, 2);
  EXPECT_TRUE(warnings.messages.empty());
  for (int step = 0; step < 5; ++step) door.enter(foreign, kSizes, 2);
  EXPECT_EQ(door.num_conversions(), 6);
  ASSERT_EQ(warnings.messages.size(), 1u);
  espalier::testing::expect_parts(warnings.messages[0], {"channels-last", "converted", "Float"});
}

TEST(LaneDoor, LetsGradientsThroughAConversion) {
  LaneDoor door = make_door();
  const at::Tensor x = at::randn({2, 4, 3, 6, 5}).set_requires_grad(true);
  const at::Tensor grad = at::randn(x.sizes());
  const auto of_x = torch::autograd::grad({door.enter(x, kSizes, 2) * 2}, {x}, {grad});
  EXPECT_TRUE(at::equal(of_x[0], grad * 2));
}

TEST(LaneDoor, RefusesOtherSizes) {
  LaneDoor door = make_door();
  EXPECT_ERROR(door.enter(at::randn({2, 4, 3, 6, 6}), kSizes, 2), UsageError, "[2,B,3,6,5]",
               "[2, 4, 3, 6, 6]");
  EXPECT_ERROR(door.enter(at::randn({3, 4, 3, 6, 5}), kSizes, 2), UsageError, "[2,B,3,6,5]");
  EXPECT_ERROR(door.enter(at::randn({4, 3, 6, 5}), kSizes, 2), UsageError, "[2,B,3,6,5]");
}

TEST(LaneDoor, TakesAnySizeWhereNoneIsWanted) {
  LaneDoor door = make_door();
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  EXPECT_TRUE(door.enter(x, {3, -1, -1}, 2).is_same(x));
  EXPECT_ERROR(door.enter(x, {4, -1, -1}, 2), UsageError, "host: x", "[2,B,4,H,W]", "[2, 4, 3, 6, 5]");
}

TEST(LaneDoor, NamesTheOpThatBrokeTheLayout) {
  EXPECT_NO_THROW(
      check_layout_after("block1.norm", images(MemoryFormat::kChannelsLast), MemoryFormat::kChannelsLast));
  EXPECT_ERROR(
      check_layout_after("block1.norm", images(MemoryFormat::kContiguous), MemoryFormat::kChannelsLast),
      Error, "block1.norm", "channels-last", "strides");
  EXPECT_ERROR(
      check_layout_after("block1.norm", images(MemoryFormat::kChannelsLast), MemoryFormat::kContiguous),
      Error, "block1.norm", "contiguous");
}

}  // namespace
}  // namespace espalier::lanes
