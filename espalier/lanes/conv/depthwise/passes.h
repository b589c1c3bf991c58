// The passes of a stacked depthwise convolution on CUDA: a kernel of all lanes, and no choice, since cuDNN
// would be launched once per lane for what one pass over memory does.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/conv/cudnn_plan.h"
#include "espalier/lanes/conv/layer.h"

namespace espalier::lanes {

// Channels-last stacks on CUDA of any float type; one 3x3 filter per channel, stride 1, at most 2 pixels of
// padding. x, weight: as of the pass.
bool takes_depthwise_cuda(const at::Tensor& x, const at::Tensor& weight, const ConvGeometry& geometry);

// As conv_by_cuda() in choose.h.
void depthwise_by_cuda(ConvPass pass, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out,
                       const at::Tensor& bias, const ConvGeometry& geometry, const at::Tensor& entries);

}  // namespace espalier::lanes
