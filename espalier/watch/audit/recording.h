// A run of Kineto: records from construction to finish(), or to the end of its life where a step throws.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <functional>
#include <memory>

namespace espalier::watch {

class Recording {
 public:
  // Fails, beginning with `who`, where a profiler is running on this thread already.
  Recording(c10::Device device, const char* who);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::unique_ptr<torch::autograd::profiler::ProfilerResult> finish();

 private:
  bool is_running_ = true;
};

inline constexpr const char* kStepRange = "profiled step";

// Runs `step` `steps` times, each in a range of that name, and waits for the device at both ends. The caller
// has warmed up.
std::unique_ptr<torch::autograd::profiler::ProfilerResult> record_steps(c10::Device device, const char* who,
                                                                        int steps,
                                                                        const std::function<void()>& step);

// The host waits until the device has done everything.
void wait_for(c10::Device device);

}  // namespace espalier::watch
