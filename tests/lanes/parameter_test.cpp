#include "espalier/lanes/parameter.h"

#include "tests/lanes/compare.h"
#include "tests/support/message.h"
#include "tests/support/stacked_layout.h"

namespace espalier::lanes {
namespace {

TEST(LaneParameter, HasAGradientAndACopyThatKeepItsLayoutFromBirth) {
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    const LaneParameter weight({3, 5, 3, 3, 3}, at::kFloat, compute);
    EXPECT_TRUE(weight.value().is_leaf() && weight.value().requires_grad());
    EXPECT_TRUE(at::equal(weight.gradient(), at::zeros({3, 5, 3, 3, 3})));
    for (const at::Tensor& tensor : {weight.value(), weight.gradient(), weight.compute()})
      EXPECT_TRUE(support::is_stacked_channels_last(tensor));
    EXPECT_EQ(weight.gradient().strides(), weight.value().strides());
    EXPECT_EQ(weight.compute().scalar_type(), compute);
    EXPECT_EQ(weight.compute().data_ptr() == weight.value().data_ptr(), compute == at::kFloat);
  }
}

TEST(LaneParameter, ShowsMoreEntriesOfStorageThatNeverMoves) {
  LaneParameter weight({4, 2, 3, 3, 3}, at::kFloat, at::kBFloat16);
  weight.storage().normal_();
  weight.refresh();
  const void* const before[] = {weight.value().data_ptr(), weight.gradient().data_ptr(),
                                weight.compute().data_ptr()};
  for (const int64_t lanes : {0, 1, 2, 4}) {
    weight.use_lanes(lanes);
    EXPECT_TRUE(weight.value().is_leaf() && weight.value().requires_grad());
    const void* const after[] = {weight.value().data_ptr(), weight.gradient().data_ptr(),
                                 weight.compute().data_ptr()};
    for (size_t i = 0; i < 3 && lanes > 0; ++i) EXPECT_EQ(before[i], after[i]);
    for (const at::Tensor& tensor : {weight.value(), weight.gradient(), weight.compute()})
      EXPECT_EQ(tensor.size(0), lanes);
    EXPECT_TRUE(at::equal(weight.compute(), weight.value().to(at::kBFloat16)));
  }
  EXPECT_ERROR(weight.use_lanes(5), c10::Error, "lanes", "4", "5");
}

TEST(LaneParameter, MovesToTheOtherMemoryFormatWithItsValues) {
  LaneParameter weight({2, 4, 3, 3, 3}, at::kFloat, at::kBFloat16), bias({2, 4}, at::kFloat, at::kFloat);
  weight.storage().normal_();
  weight.refresh();
  const at::Tensor values = weight.value().detach().clone();
  weight.set_format(MemoryFormat::kContiguous);
  bias.set_format(MemoryFormat::kContiguous);
  for (const at::Tensor& tensor : {weight.value(), weight.gradient(), weight.compute()})
    EXPECT_EQ(format_of(tensor), MemoryFormat::kContiguous);
  EXPECT_TRUE(at::equal(weight.value(), values));
  EXPECT_TRUE(at::equal(weight.compute(), values.to(at::kBFloat16)));
}

}  // namespace
}  // namespace espalier::lanes
