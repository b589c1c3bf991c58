// Pooling of every lane.
//
// Kept true: lanes never mix; results are written straight into their slices, every lane channels-last; NaN
// passes through, as in torch.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::lanes {

// x [L,B,C,H,W] f32|f64|bf16 cl lanes, H and W at least 2. The largest of every 2x2 window; an odd last row
// or column is left out. Returns [L,B,C,H/2,W/2] cl lanes.
at::Tensor lane_max_pool2x2(const at::Tensor& x);

// x [L,B,C,H,W] f32|f64|bf16|f16 cl lanes. The largest of every 3x3 window, two pixels apart, the first one
// pixel over the edge: a residual network's. Returns [L,B,C,(H+1)/2,(W+1)/2] cl lanes.
at::Tensor lane_max_pool3x3(const at::Tensor& x);

// x [L,B,C,H,W] f32|f64|bf16 cl lanes. The mean over all pixels: [L,B,C] row-major lanes.
at::Tensor lane_global_average_pool(const at::Tensor& x);

}  // namespace espalier::lanes
