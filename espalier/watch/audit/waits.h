// Says of a few steps that ran under Kineto where the host waited for the device, and what it copied back.
//
// Kept true: a wait is a call of the CUDA runtime that returns only when the device got somewhere: a
// synchronisation of a stream, an event or the whole device, a copy by cudaMemcpy, which ends in one, a copy
// from or to pageable memory, which the driver stages, or memory given back to the driver. A pageable copy
// and the synchronisation that torch puts right behind it are one wait. Waits between devices, and copies
// from pinned memory that nobody waits for, are none. The CPU is no device to wait for: it is not audited.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/watch/audit/host_trace.h"

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
  c10::Device device = c10::kCPU;
  int steps = 0;
  std::vector<HostWait> waits;  // the most frequent first
  int64_t num_calls = 0;        // into the runtime, in the steps: 0 means that none was recorded
  int64_t num_copies_back = 0;  // from the device to the host

  int64_t num_waits() const;
  // A table of the waits and their number per step; a sentence where nothing was there to count.
  std::string text() const;
};

// Whether this call of the runtime makes the host wait, whatever it is given.
bool is_host_wait(std::string_view runtime_call);

// Reads a recording by record_steps().
SyncReport read_waits(const torch::autograd::profiler::ProfilerResult& trace, c10::Device device, int steps);
// Reads what ran within spans named kStepRange.
SyncReport read_waits(const HostTrace& trace, c10::Device device, int steps);

}  // namespace espalier::watch
