// Where the time of a recording went: kernels by what they do, and the ops that the host spent most on.
#pragma once

#include <torch/csrc/autograd/profiler_kineto.h>

#include <string>

namespace espalier::watch {

// A table each; that of kernels only where there are any.
std::string work_summary(const torch::autograd::profiler::ProfilerResult& trace);

}  // namespace espalier::watch
