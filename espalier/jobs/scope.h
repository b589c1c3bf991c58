// What every job does before it loads data or makes a network: takes its devices, keeps torch's allocator to
// --device-memory, sets --threads, and chooses its algorithms (--deterministic, --convolutions). One place,
// so that no job forgets one of them.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "espalier/run/directory.h"
#include "espalier/train/job_config.h"
#include "espalier/train/step/deterministic_scope.h"

namespace espalier::jobs {

class JobScope {
 public:
  // devices: all that the job works on; one may be named twice.
  JobScope(const train::JobConfig& options, const std::vector<c10::Device>& devices);

 private:
  train::DeterministicScope deterministic_;
};

// How the process's convolutions were chosen: saved beside a job's state, and repeated where it goes on.
run::Run::Choices convolution_choices();
// The same as convolutions.json of the run, which --convolutions of another one reads.
void write_convolutions(const run::Run& run);

}  // namespace espalier::jobs
