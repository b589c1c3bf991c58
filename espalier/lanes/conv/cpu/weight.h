// The weight gradient of one lane's convolution on the CPU, born channels-last: torch's own is NCHW, and
// would have to be converted every step.
//
// x is copied into a raster with its padding, so that every tap reads without asking where the image ends;
// the output gradient is read where it lies. See weight_tile.h for the loops.
//
// Kept true:
// - The bits depend on the lane's values and sizes and on the machine's vector unit alone, not on how many
//   threads there are: every sum has one place and one order.
// - Sums are taken in double over pieces of at most a few hundred pixels, so the error stays below torch's,
//   which adds all pixels in one chain.
// - What is not finite spreads over its filter's and channel's taps, also where it met padding alone.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/conv/layer.h"

namespace espalier::lanes {

// grad [B,K,H',W'], x [B,C,H,W], cl, of one float type; narrow ones are computed in f32.
// grad_weight [K,C/groups,k,k] cl, of any float type: written.
void conv_weight_by_cpu(const at::Tensor& grad, const at::Tensor& x, const ConvGeometry& geometry,
                        const at::Tensor& grad_weight);

}  // namespace espalier::lanes
