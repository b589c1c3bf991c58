// The kernels of blend_op, over what args.h says. Deterministic: no atomics, sums in an order that a sample's
// size gives.
#pragma once

#include "espalier/grow/blend/args.h"
#include "espalier/lanes/kernel.h"

namespace espalier::grow {

cudaError_t launch_select_forward(const BlendArgs& args, cudaStream_t stream);
cudaError_t launch_select_backward(const BlendArgs& args, cudaStream_t stream);
cudaError_t launch_blend_forward(const BlendArgs& args, cudaStream_t stream);
cudaError_t launch_blend_backward(const BlendArgs& args, cudaStream_t stream);

}  // namespace espalier::grow
