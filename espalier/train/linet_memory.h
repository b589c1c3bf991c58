// What `espalier train linet` will take on its device, estimated from shapes before anything is built.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/data/sources/host_dataset.h"
#include "espalier/train/linet_options.h"
#include "espalier/train/memory_plan.h"

namespace espalier::train {

// The parts, for a device that need not be there. data_bytes: of the dataset, where it stays on the device.
MemoryPlan linet_parts(const LinetOptions& options, int64_t data_bytes,
                       const std::vector<data::FieldSpec>& fields, int64_t num_classes, at::Device device);

// The same with what the device has.
MemoryPlan plan_linet(const LinetOptions& options, int64_t data_bytes,
                      const std::vector<data::FieldSpec>& fields, int64_t num_classes);

}  // namespace espalier::train
