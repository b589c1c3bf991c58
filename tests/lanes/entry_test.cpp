#include "espalier/lanes/entry.h"

#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/lanes/stack.h"
#include "tests/lanes/compare.h"
#include "tests/lanes/layouts.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

constexpr int64_t kSizes[] = {3, 6, 5};

LaneEntry make_entry(MemoryFormat format = MemoryFormat::kChannelsLast) {
  return LaneEntry("host: x", format, at::kFloat, at::kCPU);
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

TEST(LaneEntry, LetsAChannelsLastTensorPassWithNoWork) {
  LaneEntry entry = make_entry();
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  EXPECT_TRUE(entry.enter(x, kSizes, 2).is_same(x));
  EXPECT_EQ(entry.num_conversions(), 0);
}

TEST(LaneEntry, LetsLanesThatShareMemoryPass) {
  LaneEntry entry = make_entry();
  const at::Tensor x = images(MemoryFormat::kChannelsLast).select(0, 0).unsqueeze(0).expand({2, 4, 3, 6, 5});
  EXPECT_TRUE(entry.enter(x, kSizes, 2).is_same(x));
}

TEST(LaneEntry, GivesLanesThatLieInBothOrdersTheNetworksStridesAndCopiesNothing) {
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{1, 3, 1, 5, 4}, {1, 3, 4, 1, 1}, {2, 1, 1, 5, 4}, {1, 1, 1, 1, 1}}) {
      LaneEntry entry = make_entry(format);
      for (const testing::Laid& laid : testing::dense_layouts(at::randn(sizes))) {
        SCOPED_TRACE(laid.name + " " + c10::Join("x", sizes));
        const at::Tensor x = laid.tensor.detach().set_requires_grad(true);
        const at::Tensor in = entry.enter(x, {sizes[2], -1, -1}, sizes[0]);
        EXPECT_EQ(in.data_ptr(), x.data_ptr());
        EXPECT_EQ(in.strides().slice(1), empty_lanes(sizes, at::kFloat, format).strides().slice(1));
        const at::Tensor grad = at::randn(sizes);
        EXPECT_TRUE(at::equal(torch::autograd::grad({in * 2}, {x}, {grad})[0], grad * 2));
      }
      EXPECT_EQ(entry.num_conversions(), 0);
    }
}

TEST(LaneEntry, ConvertsAForeignLayoutOnce) {
  LaneEntry entry = make_entry();
  const at::Tensor x = at::randn({2, 4, 3, 6, 5});
  const at::Tensor in = entry.enter(x, kSizes, 2);
  EXPECT_TRUE(at::equal(in, x));
  EXPECT_EQ(in.strides(), empty_lanes(x.sizes(), x.options()).strides());
  EXPECT_EQ(entry.num_conversions(), 1);
  EXPECT_TRUE(entry.enter(in, kSizes, 2).is_same(in));
  EXPECT_EQ(entry.num_conversions(), 1);
}

TEST(LaneEntry, ConvertsAForeignType) {
  LaneEntry entry = make_entry();
  const at::Tensor x = images(MemoryFormat::kChannelsLast, at::kDouble);
  const at::Tensor in = entry.enter(x, kSizes, 2);
  EXPECT_EQ(in.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(in, x.to(at::kFloat)));
  EXPECT_EQ(entry.num_conversions(), 1);
}

TEST(LaneEntry, WantsContiguousLanesWhereTheNetworkIsContiguous) {
  LaneEntry entry = make_entry(MemoryFormat::kContiguous);
  const at::Tensor x = images(MemoryFormat::kContiguous), foreign = images(MemoryFormat::kChannelsLast);
  EXPECT_TRUE(entry.enter(x, kSizes, 2).is_same(x));
  EXPECT_EQ(format_of(entry.enter(foreign, kSizes, 2)), MemoryFormat::kContiguous);
  EXPECT_EQ(entry.num_conversions(), 1);
}

TEST(LaneEntry, WarnsOnceAboutAStepThatConvertsEveryTime) {
  Warnings warnings;
  LaneEntry entry = make_entry();
  const at::Tensor foreign = at::randn({2, 4, 3, 6, 5});
  entry.enter(foreign, kSizes, 2);
  EXPECT_TRUE(warnings.messages.empty());
  for (int step = 0; step < 5; ++step) entry.enter(foreign, kSizes, 2);
  EXPECT_EQ(entry.num_conversions(), 6);
  ASSERT_EQ(warnings.messages.size(), 1u);
  espalier::testing::expect_parts(warnings.messages[0], {"channels-last", "converted", "Float"});
}

TEST(LaneEntry, LetsGradientsThroughAConversion) {
  LaneEntry entry = make_entry();
  const at::Tensor x = at::randn({2, 4, 3, 6, 5}).set_requires_grad(true);
  const at::Tensor grad = at::randn(x.sizes());
  const auto grad_x = torch::autograd::grad({entry.enter(x, kSizes, 2) * 2}, {x}, {grad});
  EXPECT_TRUE(at::equal(grad_x[0], grad * 2));
}

TEST(LaneEntry, RefusesOtherSizes) {
  LaneEntry entry = make_entry();
  EXPECT_ERROR(entry.enter(at::randn({2, 4, 3, 6, 6}), kSizes, 2), UsageError, "[2,B,3,6,5]",
               "[2, 4, 3, 6, 6]");
  EXPECT_ERROR(entry.enter(at::randn({3, 4, 3, 6, 5}), kSizes, 2), UsageError, "[2,B,3,6,5]");
  EXPECT_ERROR(entry.enter(at::randn({4, 3, 6, 5}), kSizes, 2), UsageError, "[2,B,3,6,5]");
}

TEST(LaneEntry, TakesAnySizeWhereNoneIsWanted) {
  LaneEntry entry = make_entry();
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  EXPECT_TRUE(entry.enter(x, {3, -1, -1}, 2).is_same(x));
  EXPECT_ERROR(entry.enter(x, {4, -1, -1}, 2), UsageError, "host: x", "[2,B,4,H,W]", "[2, 4, 3, 6, 5]");
}

TEST(LaneEntry, NamesTheOpThatBrokeTheLayout) {
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
