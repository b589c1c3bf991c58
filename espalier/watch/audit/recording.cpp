#include "espalier/watch/audit/recording.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <set>

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

void wait_for(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace espalier::watch
