#include "espalier/train/host_job.h"

namespace espalier::train {

PopulationOptions one_lane(const HostJobOptions& options) {
  PopulationOptions population;
  static_cast<TrainingOptions&>(population) = options;
  population.devices = options.device;
  population.lanes = 1;
  population.host = "cifar_wide";
  return population;
}

PopulationResult run_host_job(const HostJobOptions& options, const PopulationEvents& events) {
  return run_population_job(one_lane(options), events,
                            {.name = "host", .lane_lines = LaneLines::kNo, .config = to_json(options)});
}

}  // namespace espalier::train
