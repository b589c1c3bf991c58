// The three passes of a stacked convolution, on tensors alone: what lane_conv's autograd function calls.
//
// x [L,B,C,H,W], weight [L,K,C/groups,k,k] and grad [L,B,K,H',W'] are of one type and memory format.
// entries: [L] i64 or undefined; lanes whose entry is negative are left out (lanes/active.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/conv/layer.h"

namespace espalier::lanes {

// out: [L,B,K,H',W']. bias: [L,K] of any float type, or undefined.
void conv_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const ConvGeometry& geometry, const at::Tensor& entries, const at::Tensor& out);

// grad_x: as x.
void conv_backward_data(const at::Tensor& grad, const at::Tensor& weight, const ConvGeometry& geometry,
                        const at::Tensor& entries, const at::Tensor& grad_x);

// grad_weight: as weight, of any float type.
void conv_backward_weight(const at::Tensor& grad, const at::Tensor& x, const ConvGeometry& geometry,
                          const at::Tensor& entries, const at::Tensor& grad_weight);

}  // namespace espalier::lanes
