// Group norm on the CPU with the ReLU before it and the sum or ReLU after it in one go, over all lanes.
//
// Kept true: a lane's bits depend on that lane alone. Sums are taken in double: a sample's own, those of the
// parameters' gradients over parts of the batch whose number the lane's shape gives.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/norm/layer.h"

namespace espalier::lanes {

// Whether group_norm_by_cpu() can: f32 or bf16 channels-last lanes on the CPU.
bool takes_group_norm_cpu(const at::Tensor& x);

// As lane_group_norm(), whose checks it expects; without a mask.
at::Tensor group_norm_by_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const GroupNormCall& call);

}  // namespace espalier::lanes
