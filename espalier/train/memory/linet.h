// What `espalier train linet` will take on its device, from shapes alone. See plan.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/data/sources/host_dataset.h"
#include "espalier/train/linet/config.h"
#include "espalier/train/memory/plan.h"
#include "espalier/train/memory/population.h"

namespace espalier::train {

struct LinetNeeds {
  LinetConfig options;
  std::vector<data::FieldSpec> fields;  // the data's
  int64_t num_classes = 1;
  DataNeeds data;
  at::Device device = at::kCPU;  // need not be there
};

// Without CUDA's own part and the budget.
MemoryPlan linet_parts(const LinetNeeds& needs);

}  // namespace espalier::train
