// blend_op on CUDA: all stacks of a slot in one pass over its lanes, forward and backward.
#pragma once

#include "espalier/grow/blend/op.h"

namespace espalier::grow {

// Stacks on CUDA of any float type and either memory format.
bool takes_blend_cuda(const at::Tensor& h);

SelectedAll select_by_cuda(const at::Tensor& h, const std::vector<BlendTable>& tables);
at::Tensor blend_by_cuda(at::Tensor h, const std::vector<Grown>& stacks);

}  // namespace espalier::grow
