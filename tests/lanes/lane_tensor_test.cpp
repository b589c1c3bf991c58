#include "espalier/lanes/lane_tensor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/layout.h"

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
      EXPECT_TRUE(sizes.size() != 5 || is_stacked_channels_last(lanes));
    }
  }
}

TEST(LaneTensor, GivesParametersAGradientThatKeepsTheirLayout) {
  const at::Tensor weight = make_parameter({3, 5, 3, 3, 3}, at::kFloat);
  EXPECT_TRUE(weight.is_leaf() && weight.requires_grad());
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({3, 5, 3, 3, 3})));
  EXPECT_TRUE(is_stacked_channels_last(weight));
  EXPECT_EQ(weight.grad().strides(), weight.strides());
}

}  // namespace
}  // namespace espalier::lanes
