#include "espalier/watch/audit/layout_kind.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/tensor/layout.h"
#include "tests/support/message.h"

namespace espalier::watch {
namespace {

LayoutKind layout_of(const at::Tensor& tensor) {
  return watch::layout_of(tensor.sizes(), tensor.strides());
}

bool is_same_order(const at::Tensor& to, const at::Tensor& from) {
  return watch::is_same_order({to.sizes(), to.strides()}, {from.sizes(), from.strides()});
}

at::Tensor images(MemoryFormat format, at::IntArrayRef sizes = {2, 3, 5, 4}) {
  return empty_images(sizes, format, at::kFloat);
}

at::Tensor stacked(MemoryFormat format, at::IntArrayRef sizes = {3, 2, 3, 5, 4}) {
  return empty_stacked(sizes, format, at::kFloat);
}

TEST(LayoutKind, TellsImagesApart) {
  EXPECT_EQ(layout_of(images(MemoryFormat::kContiguous)), LayoutKind::kContiguous);
  EXPECT_EQ(layout_of(images(MemoryFormat::kChannelsLast)), LayoutKind::kChannelsLast);
  EXPECT_EQ(layout_of(images(MemoryFormat::kContiguous).permute({3, 2, 1, 0})), LayoutKind::kOther);
  EXPECT_EQ(layout_of(images(MemoryFormat::kChannelsLast).slice(1, 0, 2)), LayoutKind::kOther);
  EXPECT_EQ(layout_of(images(MemoryFormat::kContiguous).select(0, 0).expand({2, 3, 5, 4})),
            LayoutKind::kOther);
}

TEST(LayoutKind, TellsStacksApartWithGapsAndWithout) {
  // 2*3*5*4 floats are 480 bytes: a lane takes 512. 2*8*4*4 floats leave no gap.
  ASSERT_EQ(stacked(MemoryFormat::kChannelsLast).stride(0), 128);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 2, 3, 5, 4}, {3, 2, 8, 4, 4}, {1, 2, 3, 5, 4}}) {
    EXPECT_EQ(layout_of(stacked(MemoryFormat::kChannelsLast, sizes)), LayoutKind::kStackedChannelsLast);
    EXPECT_EQ(layout_of(stacked(MemoryFormat::kContiguous, sizes)), LayoutKind::kStackedContiguous);
    EXPECT_EQ(layout_of(stacked(MemoryFormat::kChannelsLast, sizes).select(0, 0)), LayoutKind::kChannelsLast);
  }
  EXPECT_EQ(layout_of(stacked(MemoryFormat::kChannelsLast).select(1, 0)), LayoutKind::kChannelsLast);
  EXPECT_EQ(layout_of(stacked(MemoryFormat::kChannelsLast).transpose(0, 1)), LayoutKind::kOther);
}

TEST(LayoutKind, CallsWhatLiesInBothOrdersEither) {
  for (const MemoryFormat format : {MemoryFormat::kContiguous, MemoryFormat::kChannelsLast}) {
    EXPECT_EQ(layout_of(images(format, {2, 1, 5, 4})), LayoutKind::kEither);
    EXPECT_EQ(layout_of(images(format, {2, 3, 1, 1})), LayoutKind::kEither);
    EXPECT_EQ(layout_of(images(format, {0, 3, 5, 4})), LayoutKind::kEither);
    EXPECT_EQ(layout_of(stacked(format, {2, 2, 3, 1, 1})), LayoutKind::kEither);
  }
}

TEST(LayoutKind, CallsRowMajorTensorsOfFewAxesRows) {
  EXPECT_EQ(layout_of(at::zeros({})), LayoutKind::kRows);
  EXPECT_EQ(layout_of(at::zeros({3, 4})), LayoutKind::kRows);
  EXPECT_EQ(layout_of(at::zeros({3, 64}).slice(1, 0, 5)), LayoutKind::kRows);
  EXPECT_EQ(layout_of(at::zeros({3, 4}).t()), LayoutKind::kOther);
  EXPECT_EQ(layout_of(at::zeros({2, 2, 2, 2, 2, 2})), LayoutKind::kContiguous);
}

TEST(LayoutKind, RefusesStridesThatDoNotFit) {
  const std::vector<int64_t> sizes{2, 3}, strides{1};
  EXPECT_ERROR(watch::layout_of(sizes, strides), Error, "layout_of: strides", "2", "1");
}

TEST(SameOrder, HoldsForCopiesThatWalkBothAlike) {
  const at::Tensor last = images(MemoryFormat::kChannelsLast), first = images(MemoryFormat::kContiguous);
  EXPECT_TRUE(is_same_order(last, last));
  EXPECT_FALSE(is_same_order(last, first));
  EXPECT_FALSE(is_same_order(first, last));
  EXPECT_TRUE(is_same_order(stacked(MemoryFormat::kChannelsLast).select(0, 1), last)) << "gaps are no order";
  const at::Tensor wide = images(MemoryFormat::kChannelsLast, {2, 6, 5, 4});
  EXPECT_TRUE(is_same_order(last, wide.slice(1, 0, 3))) << "nor is a part of the channels";
  EXPECT_FALSE(is_same_order(at::zeros({3, 4}), at::zeros({4, 3}).t()));
}

TEST(SameOrder, LeavesOutAxesThatLieEitherWay) {
  EXPECT_TRUE(is_same_order(images(MemoryFormat::kChannelsLast, {2, 1, 5, 4}),
                            images(MemoryFormat::kContiguous, {2, 1, 5, 4})));
  EXPECT_TRUE(is_same_order(images(MemoryFormat::kChannelsLast), at::zeros({3, 1, 1})));
  EXPECT_TRUE(is_same_order(images(MemoryFormat::kChannelsLast), at::zeros({}).expand({2, 3, 5, 4})));
  EXPECT_FALSE(is_same_order(images(MemoryFormat::kChannelsLast), at::zeros({3, 5, 4})));
}

TEST(KernelNames, AreKnownWhereTheyReformat) {
  struct Known {
    const char* name;
    KernelKind kind;
    const char* label;
  };
  for (const Known& known : {
           Known{"void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>(...)",
                 KernelKind::kReformat, "nchwToNhwcKernel"},
           {"void cudnn::ops::nhwcToNchwKernel<__half>(int)", KernelKind::kReformat, "nhwcToNchwKernel"},
           {"void tensorTransformGeneric<float, 1>(cudnnTensorTransform)", KernelKind::kReformat,
            "tensorTransformGeneric"},
           {"cudnn::nhwcSliceCKernel(a, b)", KernelKind::kReformat, "nhwcSliceCKernel"},
           {"void at::native::elementwise_kernel<128, 4, "
            "at::native::direct_copy_kernel_cuda(int)::{lambda()#3}>",
            KernelKind::kCopy, "direct_copy_kernel_cuda"},
           {"void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<int, unsigned, 1>(T*)",
            KernelKind::kCopy, "CatArrayBatchedCopy_contig"},
           {"Memcpy DtoD (Device -> Device)", KernelKind::kCopy, "Memcpy DtoD"},
           {"Memcpy HtoD (Pinned -> Device)", KernelKind::kCompute, ""},
           {"sm90_xmma_fprop_implicit_gemm_nhwc_f32", KernelKind::kCompute, ""},
           {"", KernelKind::kCompute, ""},
       }) {
    EXPECT_EQ(classify_kernel(known.name).kind, known.kind) << known.name;
    EXPECT_EQ(classify_kernel(known.name).label, known.label) << known.name;
  }
}

}  // namespace
}  // namespace espalier::watch
