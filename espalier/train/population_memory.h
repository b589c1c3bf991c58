// What a population will take on its device, from shapes alone. See memory_plan.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "espalier/data/sources/host_dataset.h"
#include "espalier/train/memory_plan.h"
#include "espalier/train/population_options.h"

namespace espalier::train {

// data_bytes: of the dataset, where it stays on the device. Without CUDA's own part and the budget.
MemoryPlan population_parts(const PopulationOptions& options, int64_t data_bytes,
                            const data::FieldSpec& field, int64_t num_classes, at::Device device);

}  // namespace espalier::train
