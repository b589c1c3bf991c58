// The norms by kernels of all lanes: what lane_norm calls for stacks on CUDA with channels-last lanes.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/norm/layer.h"

namespace espalier::lanes {

bool takes_norm_kernel(const at::Tensor& x);

// As lane_batch_norm2d() and lane_group_norm(), whose checks were made.
at::Tensor batch_norm_by_kernel(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                const BatchNormCall& call);
at::Tensor group_norm_by_kernel(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                const GroupNormCall& call);

}  // namespace espalier::lanes
