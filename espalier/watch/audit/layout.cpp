#include "espalier/watch/audit/layout.h"

#include "espalier/core/error.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/audit/trace_reader.h"

namespace espalier::watch {

LayoutReport audit_layout(c10::Device device, int steps, const std::function<void()>& step) {
  if (steps < 1) fail_usage("audit_layout: steps: want at least 1, got {}", steps);
  wait_for(device);  // kernels of earlier work are none of the step's
  Recording recording(device, "audit_layout");
  for (int i = 0; i < steps; ++i) step();
  wait_for(device);
  LayoutReport report = read_trace(*recording.finish());
  report.device = device.str();
  report.steps = steps;
  return report;
}

}  // namespace espalier::watch
