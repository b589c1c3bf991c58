// Runs a few steps under Kineto and says where the host waited for the device, and what it copied back.
//
// Kept true: a wait is a call of the CUDA runtime that returns only when the device got somewhere: a
// synchronisation of a stream, an event or the whole device, or a copy by cudaMemcpy, which ends in one.
// Waits between devices, and copies from pinned memory that nobody waits for, are none.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace espalier::watch {

// Counts are over all steps.
struct HostWait {
  std::string call;   // "cudaEventSynchronize"
  std::string op;     // the outermost op around it, "aten::item"; kNoOp: none
  std::string place;  // the innermost named range (RECORD_USER_SCOPE), or kNoPlace
  int64_t times = 0;
  double total_us = 0;
};

struct SyncReport {
  std::string device;
  int steps = 0;
  std::vector<HostWait> waits;  // the most frequent first
  int64_t num_copies_back = 0;  // from the device to the host

  int64_t num_waits() const;
  std::string text() const;
};

// Whether this call of the runtime makes the host wait.
bool is_host_wait(std::string_view runtime_call);

// Of a recording by record_steps().
SyncReport read_waits(const torch::autograd::profiler::ProfilerResult& trace, c10::Device device, int steps);

// Runs `step` `steps` times. The caller has warmed up. On the CPU there is nothing to wait for.
SyncReport audit_sync(c10::Device device, int steps, const std::function<void()>& step);

}  // namespace espalier::watch
