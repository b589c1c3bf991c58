// Stacked parameters as the kernels that go over all of them see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "espalier/lanes/optim/update_kernel.h"
#include "espalier/lanes/parameter.h"

namespace espalier::lanes {

// Whether the parameters are on CUDA, in a type that kernels take.
bool takes_update_kernel(const std::vector<LaneParameter*>& parameters);

// Calls launch(table, index of the table's first parameter) with tables of kMostParameters at most, made of
// values, gradients and, where the compute type is narrow, copies; `fill` may add to each entry.
void for_tables(const std::vector<LaneParameter*>& parameters,
                const std::function<void(ParameterEntry&, size_t parameter)>& fill,
                const std::function<void(const ParameterTable&, size_t first)>& launch);

}  // namespace espalier::lanes
