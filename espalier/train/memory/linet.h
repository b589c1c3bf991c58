// What `espalier train linet` will take on its device, from shapes alone. See plan.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/data/sources/host_dataset.h"
#include "espalier/train/linet/config.h"
#include "espalier/train/memory/data.h"
#include "espalier/train/memory/plan.h"

namespace espalier::train {

struct LinetNeeds {
  LinetConfig options;                  // batch: this rank's part of it
  std::vector<data::FieldSpec> fields;  // the data's
  int64_t num_classes = 1;
  DataNeeds data;
  at::Device device = at::kCPU;  // need not be there
  int64_t ranks = 1;             // that share every batch out
};

// Without CUDA's own part and the budget.
MemoryPlan linet_parts(const LinetNeeds& needs);

}  // namespace espalier::train
