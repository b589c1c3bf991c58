// Batch norm on the CPU with its residual, ReLU and 2x2 pool in one go, forward and backward, over all lanes.
//
// Kept true: a lane's bits depend on that lane alone, and on neither the lanes beside it nor the threads:
// sums are taken in double over parts of the batch whose number the lane's shape gives, and added up in their
// order. Whether the pool is done here or by lane_max_pool2x2() changes no bit, forward or backward.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/norm/layer.h"

namespace espalier::lanes {

// Whether batch_norm_by_cpu() can: f32 or bf16 channels-last lanes on the CPU with f32 parameters, every
// sample counted, and not a 3x3 pool.
bool takes_batch_norm_cpu(const at::Tensor& x, const at::Tensor& weight, const BatchNormCall& call);

// As lane_batch_norm2d(), whose checks it expects.
at::Tensor batch_norm_by_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const BatchNormCall& call);

}  // namespace espalier::lanes
