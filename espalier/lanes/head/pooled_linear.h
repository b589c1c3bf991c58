// What ends a convolutional network: each sample's mean over its pixels, then a linear map.
//
// Kept true: what lane_linear() makes of lane_global_average_pool(), whose means are rounded to x's type;
// lanes never mix, and a lane's bits are those it has alone. On CUDA one launch forward and one backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::lanes {

// x [L,B,C,H,W] of any float type; weight [L,O,C] and bias [L,O] of one type, bias may be undefined. Returns
// [L,B,O] of the weight's type. Differentiable once, in all three.
at::Tensor lane_pooled_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace espalier::lanes
