// What data and the batches that are made of it will take, from shapes alone. See plan.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/data/resident.h"
#include "espalier/train/memory/plan.h"

namespace espalier::train {

// Data as it is: where it stays, and how much it takes there.
struct DataNeeds {
  int64_t bytes = 0;
  data::Residency residency = data::Residency::kDevice;
  int64_t num_validation = 0;  // samples; 0: not known, or the test alone is scored
};

// "data", where it stays.
MemoryPlan data_parts(const DataNeeds& data);

// The batches of one delivery (data/delivery.h).
struct BatchNeeds {
  data::Residency residency = data::Residency::kDevice;  // the data's
  at::Device device = at::kCPU;                          // the steps'
  int64_t lanes = 1;
  int64_t batch = 1;
  std::vector<std::vector<int64_t>> image_sizes = {};  // per field: {C, H, W}
  at::ScalarType type = at::kFloat;
};
// "batches of training", and those that are made ahead where the data stays in host memory.
MemoryPlan batch_parts(const std::string& use, const BatchNeeds& needs);

}  // namespace espalier::train
