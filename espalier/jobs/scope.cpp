#include "espalier/jobs/scope.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/lanes/conv/choice.h"
#include "espalier/train/memory/plan.h"

namespace espalier::jobs {
namespace {

// Before anything else starts CUDA there; returns what it was given.
bool claim_first(const train::JobConfig& options, const std::vector<c10::Device>& devices) {
  if (options.device_memory > 0 &&
      std::ranges::all_of(devices, [](c10::Device device) { return device.is_cpu(); }))
    fail_usage(
        "--device-memory {}: caps what is allocated on a GPU, and this job works on the CPU alone: leave it "
        "out",
        format_byte_size(options.device_memory));
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  for (const c10::Device device : devices) train::claim_device(device, options.device_memory);
  return options.deterministic;
}

}  // namespace

JobScope::JobScope(const train::JobConfig& options, const std::vector<c10::Device>& devices)
    : deterministic_(claim_first(options, devices)) {
  train::repeat_convolutions(options.convolutions);
}

run::Run::Choices convolution_choices() {
  return {lanes::conv_choices, lanes::set_conv_choices};
}

void write_convolutions(const run::Run& run) {
  run.write_file("convolutions.json", nlohmann::json(lanes::conv_choices()).dump(2) + "\n");
}

}  // namespace espalier::jobs
