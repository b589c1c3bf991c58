// What a population will take on its device, from shapes alone. See plan.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "espalier/data/resident.h"
#include "espalier/grow/host/shape.h"
#include "espalier/grow/seeds/blueprint.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/memory/plan.h"
#include "espalier/train/population/config.h"
#include "espalier/train/population/shard.h"

namespace espalier::train {

// Data as it is: where it stays, and how much it takes there.
struct DataNeeds {
  int64_t bytes = 0;
  data::Residency residency = data::Residency::kDevice;
  int64_t num_validation = 0;  // samples; 0: not known, or the test alone is scored
};

struct PopulationNeeds {
  PopulationConfig options;  // lanes: those that live on the device
  // Image sizes and classes are filled in; lanes are the options'. None: one of a program's own, of which
  // nothing is planned.
  std::optional<grow::CnnHostOptions> host;
  grow::BlueprintRegistry blueprints = {};
  DataNeeds data;
  at::Device device = at::kCPU;        // need not be there
  std::optional<GrowthLimits> growth;  // none: nothing is ever planted
  OnFailure on_failure = OnFailure::kRollBack;
};

// Without CUDA's own part and the budget.
MemoryPlan population_parts(const PopulationNeeds& needs);

}  // namespace espalier::train
