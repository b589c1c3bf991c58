#include "espalier/watch/audit/layout_audit.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <memory>
#include <set>

#include "espalier/core/error.h"
#include "espalier/watch/audit/trace_reader.h"

namespace espalier::watch {
namespace {

namespace profiler = torch::autograd::profiler;

// Records from construction to finish(), or to the end of its life where a step throws.
class Recording {
 public:
  explicit Recording(c10::Device device) {
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
  ~Recording() {
    if (!is_running_) return;
    try {
      profiler::disableProfiler();
    } catch (const std::exception&) {
      // The step's own exception is on its way and says more.
    }
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::unique_ptr<profiler::ProfilerResult> finish() {
    is_running_ = false;
    return profiler::disableProfiler();
  }

 private:
  bool is_running_ = true;
};

void wait_for(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace

LayoutReport audit_layout(c10::Device device, int steps, const std::function<void()>& step) {
  if (steps < 1) fail_usage("audit_layout: steps: want at least 1, got {}", steps);
  if (profiler::profilerEnabled())
    fail("audit_layout: a profiler is running on this thread already; stop it first");
  wait_for(device);  // kernels of earlier work are none of the step's
  Recording recording(device);
  for (int i = 0; i < steps; ++i) step();
  wait_for(device);
  LayoutReport report = read_trace(*recording.finish());
  report.device = device.str();
  report.steps = steps;
  return report;
}

}  // namespace espalier::watch
