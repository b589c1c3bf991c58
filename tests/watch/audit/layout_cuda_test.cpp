#include <gtest/gtest.h>
#include <torch/torch.h>

#if ESPALIER_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include <algorithm>

#include "espalier/tensor/layout.h"
#include "espalier/watch/audit/layout.h"
#include "tests/support/cuda.h"

namespace espalier::watch {
namespace {

constexpr int kSteps = 3;
const c10::Device kCuda(at::kCUDA, 0);

// [16,64,16,16] f16 cuda
at::Tensor images(MemoryFormat format) {
  return empty_images({16, 64, 16, 16}, format, at::TensorOptions(at::kHalf).device(kCuda)).fill_(1);
}

LayoutReport audit(const std::function<void()>& step) {
  step();
  return audit_layout(kCuda, kSteps, step);
}

TEST(LayoutAuditCuda, FindsNoKernelThatReformatsInAChannelsLastConvolution) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  const at::Tensor weight = empty_images({64, 64, 3, 3}, MemoryFormat::kChannelsLast, x.options()).fill_(1);
  const LayoutReport report = audit([&] { at::relu(at::conv2d(x, weight)); });
  EXPECT_EQ(report.num_conversions(), 0) << report.text();
  EXPECT_GE(report.num_kernels, 2 * kSteps) << "kernels were recorded";
}

TEST(LayoutAuditCuda, CountsAReformattingKernelUnderTheOpThatLaunchedIt) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor x = images(MemoryFormat::kContiguous);
  const at::Tensor weight = empty_images({64, 64, 3, 3}, MemoryFormat::kContiguous, x.options()).fill_(1);
  const LayoutReport report = audit([&] {
    RECORD_USER_SCOPE("a convolution in NCHW");
    at::conv2d(x, weight);
  });
  EXPECT_TRUE(report.conversions.empty()) << report.text();
  const auto found = std::ranges::find(report.kernels, KernelKind::kReformat, &KernelUse::kind);
  ASSERT_NE(found, report.kernels.end()) << report.text();
  EXPECT_EQ(found->op, "aten::cudnn_convolution");
  EXPECT_EQ(found->place, "a convolution in NCHW");
  EXPECT_GE(report.num_conversions(), kSteps);
}

TEST(LayoutAuditCuda, CountsAConversionOnceAndNotItsKernelToo) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  const LayoutReport report = audit([&] {
    RECORD_USER_SCOPE("the culprit");
    x.contiguous();
  });
  EXPECT_EQ(report.num_conversions(), kSteps) << report.text();
  ASSERT_EQ(report.kernels.size(), 1U) << report.text();
  EXPECT_EQ(report.kernels[0].op, "aten::copy_");
  EXPECT_EQ(report.kernels[0].place, "the culprit");
  EXPECT_EQ(report.kernels[0].times, kSteps);
  EXPECT_FALSE(report.kernels[0].is_behind_an_op);
}

TEST(LayoutAuditCuda, CountsTheKernelsOfAReplayedGraph) {
  ESPALIER_SKIP_WITHOUT_CUDA();
#if ESPALIER_WITH_CUDA
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  at::cuda::CUDAGraph graph;
  at::Tensor y;
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    graph.capture_begin();
    y = at::relu(x.contiguous());
    graph.capture_end();
  }
  const LayoutReport report = audit([&] {
    RECORD_USER_SCOPE("replay");
    graph.replay();
  });
  EXPECT_TRUE(report.conversions.empty()) << report.text();
  EXPECT_EQ(report.num_kernels, 2 * kSteps) << report.text();
  ASSERT_EQ(report.kernels.size(), 1U) << report.text();
  EXPECT_EQ(report.kernels[0].op, kGraphReplay);
  EXPECT_EQ(report.kernels[0].place, "replay");
  EXPECT_EQ(report.num_conversions(), kSteps) << report.text();
#endif
}

TEST(LayoutAuditCuda, NamesTheForwardRangeOnAutogradsThread) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor x = images(MemoryFormat::kChannelsLast).requires_grad_();
  const at::Tensor upstream = empty_images({16, 64, 8, 8}, MemoryFormat::kContiguous, x.options()).fill_(1);
  const LayoutReport report = audit([&] {
    at::Tensor y;
    {
      RECORD_USER_SCOPE("pool");
      y = at::max_pool2d(x, 2);
    }
    RECORD_USER_SCOPE("backward pass");
    y.backward(upstream);
  });
  ASSERT_EQ(report.conversions.size(), 1U) << report.text();
  EXPECT_EQ(report.conversions[0].place, "backward of pool");
  EXPECT_EQ(report.conversions[0].inside, "aten::max_pool2d_with_indices_backward");
  EXPECT_EQ(report.num_conversions(), kSteps) << report.text();
}

}  // namespace
}  // namespace espalier::watch
