// How long a step takes in the memory format that a job was asked for, beside the same step in channels-last.
#pragma once

#include <optional>

#include "espalier/train/memory/plan.h"
#include "espalier/train/population/shard.h"

namespace espalier::train {

struct FormatComparison {
  double step_ms = 0;                      // as asked for
  std::optional<double> channels_last_ms;  // none: the device has no room for a second population
};

// Between epochs, before anything grew: the other step is that of a population at its beginning. Trains
// nothing. plan: of what is on the device, made before it took any memory.
FormatComparison compare_formats(Shard& trainer, const MemoryPlan& plan);

}  // namespace espalier::train
