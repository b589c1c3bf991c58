// Formulas over stacks: on the CPU one lane after the other, elsewhere all at once.
//
// Why: CPU kernels round transcendental functions, sums and contracted products differently in a vector and
// at its tail, and where that falls depends on how many lanes one loop runs over. A lane's bits must not.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/active.h"
#include "espalier/lanes/stack.h"

namespace espalier::grow {

// Calls formula(cut) with a cut that takes a stacked tensor's part: on the CPU one lane as [1,...], for those
// of the entries that are not empty (lanes/active.h); elsewhere everything, once.
template <class Formula>
void each_lane(const at::Tensor& stacked, const at::Tensor& entries, const Formula& formula) {
  if (!stacked.is_cpu()) {
    formula([](const at::Tensor& tensor) { return tensor; });
    return;
  }
  for (int64_t lane = 0; lane < stacked.size(0); ++lane)
    if (lanes::is_active(entries, lane))
      formula([lane](const at::Tensor& tensor) { return tensor.narrow(0, lane, 1); });
}

// The type of arithmetic: narrow floats are computed with in f32 and rounded once.
inline at::Tensor wide(const at::Tensor& values) {
  return values.to(values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

// An input that an autograd function hands on: the same memory and strides. Returned as it is, autograd would
// view() it, which writes other strides where there is one channel, and its layout would be misread.
inline at::Tensor same(const at::Tensor& stacked) {
  return stacked.detach();
}

// Uninitialised, as the stack lies.
inline at::Tensor stacked_like(const at::Tensor& stacked) {
  return lanes::empty_lanes(stacked.sizes(), stacked.options().requires_grad(false),
                            stacked.dim() == 5 ? lanes::format_of(stacked) : MemoryFormat::kChannelsLast);
}

}  // namespace espalier::grow
