// Reads a Kineto trace into a LayoutReport.
#pragma once

#include "espalier/watch/audit/layout.h"

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace espalier::watch {

// The trace must have been taken with input shapes. device and steps are left for the caller to fill.
LayoutReport read_trace(const torch::autograd::profiler::ProfilerResult& trace);

}  // namespace espalier::watch
