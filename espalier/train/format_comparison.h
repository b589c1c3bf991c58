// What a step costs in the memory format that a job was asked for, beside the same step in channels-last.
#pragma once

#include <optional>

#include "espalier/core/device_name.h"
#include "espalier/data/resident.h"
#include "espalier/train/memory_plan.h"
#include "espalier/train/population_options.h"
#include "espalier/train/train_step.h"

namespace espalier::train {

struct FormatComparison {
  double step_ms = 0;                      // as asked for
  std::optional<double> channels_last_ms;  // none: the device has no room for a second population
};

// Between epochs, before anything grew: the other step is that of a population at its beginning. Trains
// nothing. plan: of the run itself, made before it took any memory.
FormatComparison compare_formats(const PopulationOptions& options, const MemoryPlan& plan,
                                 const data::ResidentDataset& dataset, const DeviceName& device,
                                 TrainStep& step);

}  // namespace espalier::train
