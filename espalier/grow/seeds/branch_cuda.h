// The passes of lane_branch on CUDA, on tensors alone: what its autograd functions call.
//
// entries: [E] i64 or undefined; entries that are negative there are left out (lanes/active.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "espalier/grow/seeds/branch_formula.h"

namespace espalier::grow {

// On CUDA, of any float type; [E,...].
bool takes_branch_cuda(const at::Tensor& x);
// The same, and channels-last.
bool takes_scale_cuda(const at::Tensor& x);

// formula(a, b), laid out as `like` is. a, b: [E,...] of one type; b may be undefined where it is not read.
at::Tensor formula_by_cuda(Formula formula, const at::Tensor& a, const at::Tensor& b, const at::Tensor& like,
                           const at::Tensor& entries);

// Shapes and types as lane_mix() and lane_scale() have them; gradients in the order of their arguments.
at::Tensor mix_by_cuda(const at::Tensor& x, const at::Tensor& y, const at::Tensor& t,
                       const at::Tensor& entries);
std::array<at::Tensor, 3> mix_backward_by_cuda(const at::Tensor& grad, const at::Tensor& x,
                                               const at::Tensor& y, const at::Tensor& t,
                                               const at::Tensor& entries);
at::Tensor scale_by_cuda(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& entries);
std::array<at::Tensor, 2> scale_backward_by_cuda(const at::Tensor& grad, const at::Tensor& x,
                                                 const at::Tensor& scale, const at::Tensor& entries);

}  // namespace espalier::grow
