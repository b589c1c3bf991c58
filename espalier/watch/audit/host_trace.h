// What the audit of host waits reads of a recording, as plain values: what ran on the host, which calls of
// the CUDA runtime it made, and which copies these caused. So a test can write a trace down by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace espalier::watch {

inline constexpr int64_t kNoParent = -1;

// An op or a named range on the host.
struct HostSpan {
  enum class Kind : uint8_t { kOp, kRange };
  Kind kind = Kind::kOp;
  std::string name;  // "aten::item", "copy of the epoch"
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t id = 0;             // what the calls it makes are linked to; 0: none
  int64_t parent = kNoParent;  // index of the span around it
};

// A call of the CUDA runtime or driver.
struct RuntimeCall {
  std::string name;  // "cudaStreamSynchronize"
  uint64_t thread = 0;
  uint64_t start_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t correlation = 0;  // shared with what the call made the device do
  uint64_t linked_span = 0;  // HostSpan::id of the op that made it; 0: none did
};

// A copy as the device did it.
struct DeviceCopy {
  std::string name;          // "Memcpy DtoH (Device -> Pinned)"
  uint64_t correlation = 0;  // names the call that asked for it
};

struct HostTrace {
  std::vector<HostSpan> spans;     // a parent comes before its children
  std::vector<RuntimeCall> calls;  // by the time they began
  std::vector<DeviceCopy> copies;
};

HostTrace host_trace(const torch::autograd::profiler::ProfilerResult& trace);

}  // namespace espalier::watch
