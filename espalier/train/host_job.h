// `espalier train host`: one small network, that is, a population of one lane that nothing grows on.
#pragma once

#include "espalier/train/population_job.h"
#include "espalier/train/training_options.h"

namespace espalier::train {

struct HostJobOptions : TrainingOptions {
  std::string device = "auto";

  HostJobOptions() {
    epochs = 3;
    batch = 128;
    learning_rate = 0.2;
  }

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_device(v, device);
    TrainingOptions::visit(v);
  }
};

// Three blocks of 32, 64 and 128 channels: `cifar_wide`, in one lane.
PopulationOptions one_lane(const HostJobOptions& options);

PopulationResult run_host_job(const HostJobOptions& options, const PopulationEvents& events);

}  // namespace espalier::train
