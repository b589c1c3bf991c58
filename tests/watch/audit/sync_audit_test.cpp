#include "espalier/watch/audit/sync_audit.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::watch {
namespace {

TEST(SyncAudit, TellsCallsThatWaitFromThoseThatDoNot) {
  for (const char* call : {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize",
                           "cuStreamSynchronize", "cudaMemcpy", "cudaMemcpy2D"})
    EXPECT_TRUE(is_host_wait(call)) << call;
  for (const char* call : {"cudaMemcpyAsync", "cudaLaunchKernel", "cudaGraphLaunch", "cudaEventRecord",
                           "cudaStreamWaitEvent", "cudaEventQuery", "cudaMemsetAsync"})
    EXPECT_FALSE(is_host_wait(call)) << call;
}

TEST(SyncAudit, FindsNothingToWaitForOnTheCpu) {
  const SyncReport report = audit_sync(at::kCPU, 2, [] { at::ones({2}).sum().item<float>(); });
  EXPECT_EQ(report.num_waits(), 0);
  EXPECT_EQ(report.steps, 2);
  EXPECT_NE(report.text().find("nowhere"), std::string::npos);
  EXPECT_ERROR(audit_sync(at::kCPU, 0, [] {}), UsageError, "steps", "0");
}

TEST(SyncAuditCuda, CountsEveryWaitWithItsPlaceAndNotItsOwn) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor x = at::ones({8}, at::kCUDA);
  x.sum().item<float>();
  const SyncReport report = audit_sync(x.device(), 3, [&] {
    RECORD_USER_SCOPE("here");
    x.sum().item<float>();
  });
  EXPECT_EQ(report.num_waits(), 3) << report.text();
  ASSERT_EQ(report.waits.size(), 1u) << report.text();
  EXPECT_EQ(report.waits[0].place, "here");
  EXPECT_EQ(report.waits[0].op, "aten::item");
  EXPECT_EQ(report.num_copies_back, 3);
  const SyncReport none = audit_sync(x.device(), 3, [&] { x.add_(1); });
  EXPECT_EQ(none.num_waits(), 0) << none.text();
}

}  // namespace
}  // namespace espalier::watch
