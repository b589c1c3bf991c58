// The passes of a stacked convolution on CUDA: by the kernel of all lanes or by cuDNN, as choice.h says.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/conv/cudnn_plan.h"
#include "espalier/lanes/conv/layer.h"

namespace espalier::lanes {

// Channels-last stacks on CUDA of bf16 or f16, square filters. fp32 and f64 are there for exactness, and are
// done as torch does them.
bool takes_conv_cuda(const at::Tensor& x, const at::Tensor& weight);

// x [L,B,C,H,W], weight [L,K,C/groups,k,k], out [L,B,K,H',W']: of these the pass writes one (grad_x,
// grad_weight or the output) and reads the others. Types are x's but for the weight's gradient, which may be
// wider. bias: forward alone.
void conv_by_cuda(ConvPass pass, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out,
                  const at::Tensor& bias, const ConvGeometry& geometry, const at::Tensor& entries);

}  // namespace espalier::lanes
