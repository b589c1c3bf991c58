#include "espalier/watch/audit/recording.h"

#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "espalier/core/error.h"

namespace espalier::watch {

namespace profiler = torch::autograd::profiler;

Recording::Recording(c10::Device device, const char* who) {
  if (profiler::profilerEnabled())
    fail("{}: a profiler is running on this thread already; stop it first", who);
  std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU};
  if (device.is_cuda()) {
    activities.insert(profiler::ActivityType::CUDA);
  } else {
    // Kineto reports a machine without a GPU as an error on standard error, whatever was asked of it; it
    // reads this level once, when it is first prepared.
    setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  }
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO, /*report_input_shapes=*/true);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
}

Recording::~Recording() {
  if (!is_running_) return;
  try {
    profiler::disableProfiler();
  } catch (const std::exception&) {
    // The step's own exception is on its way and says more.
  }
}

std::unique_ptr<profiler::ProfilerResult> Recording::finish() {
  is_running_ = false;
  return profiler::disableProfiler();
}

std::unique_ptr<profiler::ProfilerResult> record_steps(c10::Device device, const char* who, int steps,
                                                       const std::function<void()>& step) {
  if (steps < 1) fail_usage("{}: steps: want at least 1, got {}", who, steps);
  wait_for(device);
  Recording recording(device, who);
  for (int i = 0; i < steps; ++i) {
    RECORD_USER_SCOPE(kStepRange);
    step();
  }
  // Clocks of the runtime and of ops differ by microseconds: the wait that ends the recording is none of a
  // step's.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  wait_for(device);
  return recording.finish();
}

void wait_for(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace espalier::watch
