#include "espalier/watch/audit/waits.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "espalier/core/error.h"
#include "espalier/watch/audit/layout.h"
#include "espalier/watch/audit/recording.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::watch {
namespace {

const c10::Device kCuda(c10::kCUDA, 0);

// Two steps, [100,199] and [200,299], each with a range "copy of the epoch" in its second half.
class WrittenTrace {
 public:
  WrittenTrace() {
    for (const uint64_t start : {100u, 200u}) {
      const int64_t step = add({HostSpan::Kind::kRange, kStepRange, start, start + 99});
      add({HostSpan::Kind::kRange, "copy of the epoch", start + 50, start + 99, 0, step});
    }
  }

  // An op from there on, within the span of that index. Returns its id.
  uint64_t op(const char* name, uint64_t start, int64_t parent) {
    const uint64_t id = trace.spans.size() + 1;
    add({HostSpan::Kind::kOp, name, start, start + 10, id, parent});
    return id;
  }
  uint64_t call(const char* name, uint64_t start, uint64_t op = 0, uint64_t thread = 1) {
    const uint64_t correlation = 1000 + trace.calls.size();
    trace.calls.push_back({name, thread, start, /*duration_ns=*/2000, correlation, op});
    return correlation;
  }
  void copy(const char* name, uint64_t correlation) { trace.copies.push_back({name, correlation}); }

  SyncReport read() const { return read_waits(trace, kCuda, 2); }

  HostTrace trace;

 private:
  int64_t add(const HostSpan& span) {
    trace.spans.push_back(span);
    return std::ssize(trace.spans) - 1;
  }
};

SyncReport audited(c10::Device device, int steps, const std::function<void()>& step) {
  return read_waits(*record_steps(device, "test", steps, step), device, steps);
}

TEST(SyncAudit, TellsCallsThatWaitFromThoseThatDoNot) {
  for (const char* call :
       {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cuStreamSynchronize",
        "cudaMemcpy", "cudaMemcpy2D", "cuMemcpyDtoH_v2", "cudaFree", "cudaFreeHost", "cuMemFree_v2"})
    EXPECT_TRUE(is_host_wait(call)) << call;
  for (const char* call :
       {"cudaMemcpyAsync", "cudaLaunchKernel", "cudaGraphLaunch", "cudaEventRecord", "cudaStreamWaitEvent",
        "cudaEventQuery", "cudaMemsetAsync", "cudaMalloc", "cudaFreeAsync", "cuMemcpyDtoHAsync_v2"})
    EXPECT_FALSE(is_host_wait(call)) << call;
}

TEST(SyncAudit, CountsTheWaitsOfStepsWithTheirPlaces) {
  WrittenTrace written;
  written.call("cudaStreamSynchronize", 10);  // before the first step
  for (const uint64_t start : {100u, 200u}) {
    written.call("cudaLaunchKernel", start + 1);
    const uint64_t copy = written.call("cudaMemcpyAsync", start + 60);
    written.copy("Memcpy DtoH (Device -> Pinned)", copy);
    written.call("cudaEventSynchronize", start + 70);
  }
  written.call("cudaDeviceSynchronize", 400);  // after the last
  const SyncReport report = written.read();
  EXPECT_EQ(report.num_waits(), 2) << report.text();
  EXPECT_EQ(report.num_calls, 6);
  EXPECT_EQ(report.num_copies_back, 2);
  ASSERT_EQ(report.waits.size(), 1u) << report.text();
  EXPECT_EQ(report.waits[0].call, "cudaEventSynchronize");
  EXPECT_EQ(report.waits[0].place, "copy of the epoch");
  EXPECT_EQ(report.waits[0].op, kNoOp);
  EXPECT_EQ(report.waits[0].total_us, 4);
  EXPECT_NE(report.text().find("host waits per step: 1\n"), std::string::npos) << report.text();
}

TEST(SyncAudit, NamesTheOpThatWaitsWhereverItsCallIsMade) {
  WrittenTrace written;
  const uint64_t item = written.op("aten::item", 160, 1);
  const uint64_t inner = written.op("aten::_local_scalar_dense", 161, std::ssize(written.trace.spans) - 1);
  EXPECT_NE(item, inner);
  written.call("cudaStreamSynchronize", 165, inner);
  written.call("cudaMemcpy", 205);
  const SyncReport report = written.read();
  ASSERT_EQ(report.waits.size(), 2u) << report.text();
  EXPECT_EQ(report.waits[0].call, "cudaMemcpy");
  EXPECT_EQ(report.waits[0].place, kNoPlace);
  EXPECT_EQ(report.waits[1].op, "aten::item");
  EXPECT_EQ(report.waits[1].place, "copy of the epoch");
  EXPECT_NE(report.text().find("aten::item"), std::string::npos);
}

// The driver stages what is not pinned, and a copy to the host is over when the call returns.
TEST(SyncAudit, CountsAPageableCopyOnceWithTheSynchronisationBehindIt) {
  WrittenTrace written;
  const auto copy = [&](uint64_t start, const char* name, uint64_t thread = 1) {
    written.copy(name, written.call("cudaMemcpyAsync", start, 0, thread));
  };
  copy(110, "Memcpy HtoD (Pageable -> Device)");
  written.call("cudaStreamSynchronize", 112);
  EXPECT_EQ(written.read().num_waits(), 1) << written.read().text();
  copy(120, "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(written.read().num_waits(), 1) << written.read().text();
  copy(210, "Memcpy DtoH (Device -> Pageable)");
  written.call("cudaStreamSynchronize", 212, 0, /*thread=*/2);  // another thread's
  written.call("cudaLaunchKernel", 214);
  const SyncReport report = written.read();
  EXPECT_EQ(report.num_waits(), 3) << report.text();
  EXPECT_EQ(report.num_copies_back, 1);
  EXPECT_TRUE(std::ranges::any_of(report.waits, [](const HostWait& wait) {
    return wait.call == "cudaMemcpyAsync, pageable";
  })) << report.text();
}

TEST(SyncAudit, SaysThatTheCpuIsNothingToWaitFor) {
  const SyncReport report = audited(at::kCPU, 2, [] { at::ones({2}).sum().item<float>(); });
  EXPECT_EQ(report.steps, 2);
  EXPECT_NE(report.text().find("no device that the host waits for"), std::string::npos);
  EXPECT_EQ(report.text().find("waits per step"), std::string::npos) << "a count of nothing";
  EXPECT_ERROR(audited(at::kCPU, 0, [] {}), UsageError, "steps", "0");
}

TEST(SyncAudit, ClaimsNothingWhereNoCallWasRecorded) {
  const SyncReport report = read_waits(HostTrace{}, kCuda, 2);
  EXPECT_EQ(report.num_calls, 0);
  EXPECT_NE(report.text().find("not known"), std::string::npos);
  EXPECT_EQ(report.text().find("waits per step"), std::string::npos);
}

// What the conversion keeps of a real recording: the spans of its steps, nested.
TEST(SyncAudit, ReadsTheSpansOfARealRecording) {
  const auto recorded = record_steps(at::kCPU, "test", 2, [] {
    RECORD_USER_SCOPE("here");
    at::ones({2}).sum().item<float>();
  });
  const HostTrace trace = host_trace(*recorded);
  EXPECT_TRUE(trace.calls.empty());
  int64_t items = 0, steps = 0;
  for (const HostSpan& span : trace.spans) {
    EXPECT_LE(span.start_ns, span.end_ns) << span.name;
    if (span.name == kStepRange) steps += 1;
    if (span.name != "aten::item") continue;
    items += 1;
    ASSERT_NE(span.parent, kNoParent);
    const HostSpan& here = trace.spans[static_cast<size_t>(span.parent)];
    EXPECT_EQ(here.name, "here");
    ASSERT_NE(here.parent, kNoParent);
    EXPECT_EQ(trace.spans[static_cast<size_t>(here.parent)].name, kStepRange);
  }
  EXPECT_EQ(items, 2);
  EXPECT_EQ(steps, 2);
}

TEST(SyncAuditCuda, CountsEveryWaitWithItsPlaceAndNotItsOwn) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor x = at::ones({8}, at::kCUDA);
  x.sum().item<float>();
  const SyncReport report = audited(x.device(), 3, [&] {
    RECORD_USER_SCOPE("here");
    x.sum().item<float>();
  });
  EXPECT_EQ(report.num_waits(), 3) << report.text();
  ASSERT_EQ(report.waits.size(), 1u) << report.text();
  EXPECT_EQ(report.waits[0].place, "here");
  EXPECT_EQ(report.waits[0].op, "aten::item");
  EXPECT_EQ(report.num_copies_back, 3);
  const SyncReport none = audited(x.device(), 3, [&] { x.add_(1); });
  EXPECT_EQ(none.num_waits(), 0) << none.text();
  EXPECT_GT(none.num_calls, 0) << none.text();
}

// To memory that is not pinned, though nobody asked to wait.
TEST(SyncAuditCuda, CountsAPageableCopyAsOneWait) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor x = at::ones({8}, at::kCUDA);
  const at::Tensor pageable = at::zeros({8});
  pageable.copy_(x);
  const SyncReport report = audited(x.device(), 3, [&] {
    RECORD_USER_SCOPE("here");
    pageable.copy_(x, /*non_blocking=*/false);
  });
  EXPECT_EQ(report.num_waits(), 3) << report.text();
  EXPECT_EQ(report.num_copies_back, 3);
  for (const HostWait& wait : report.waits) EXPECT_EQ(wait.place, "here");
}

}  // namespace
}  // namespace espalier::watch
