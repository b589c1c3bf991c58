// Stacked tensors of any rank, and the stacked parameters of a layer.
//
// Kept true: every lane is dense (channels-last where it has height and width, row-major elsewhere) and
// starts on a 256-byte boundary of its storage; so does the same lane of a parameter's gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "espalier/tensor/layout.h"

namespace espalier::lanes {

// [L,...], uninitialised: lanes of the memory format for five axes, row-major lanes else.
at::Tensor empty_lanes(at::IntArrayRef sizes, const at::TensorOptions& options,
                       MemoryFormat format = MemoryFormat::kChannelsLast);

// [L,...], zeros in all bytes, those of the gaps between lanes included.
at::Tensor zero_lanes(at::IntArrayRef sizes, const at::TensorOptions& options,
                      MemoryFormat format = MemoryFormat::kChannelsLast);

// Which order the lanes of [L,B,C,H,W] have, decided by the axes of more than one element: what torch, a
// slice or an expansion wrote as the stride of an axis of one element never changes a number.
//
// A lane of one channel, or of one pixel, lies in both orders. Then the network decides: it hands its tensors
// on with the strides that its format writes (empty_stacked()), those of single elements included, and
// format_of() reads them. Channels-last where they are neither format's, or both formats'.

// Whether every lane is dense in the format's order. All lanes have the strides of the first.
bool lies_in(const at::Tensor& stacked, MemoryFormat format);

// How lanes lie; see above.
MemoryFormat format_of(const at::Tensor& stacked);

// The format of what an op makes of several stacks: the one that the first decides whose lanes lie in one
// order only; where all lie in both, the first whose strides tell.
MemoryFormat common_format(at::TensorList stacks);

// The same memory with the strides that the format writes: itself, or a view. lies_in() the format.
at::Tensor with_strides_of(const at::Tensor& stacked, MemoryFormat format);

// A stack as the passes want it, with the strides that the format writes: itself, a view, or where its lanes
// lie otherwise (autograd hands on expanded scalars, and stacks of torch's own making) a copy.
at::Tensor as_lanes(const at::Tensor& stacked, MemoryFormat format);

// One value per lane, [L], as [L,1,...] to meet a stacked tensor of any rank: a view, in that tensor's type
// where both are floats.
at::Tensor per_lane(const at::Tensor& values, const at::Tensor& stacked);

// As an autograd function takes an argument that may be missing.
inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// The type that sums over many values are taken in: double on the CPU, as torch's own CPU norms do, and for
// double; float32 elsewhere.
at::ScalarType sum_type(const at::Tensor& values);

// Fails unless x is [L,B,C,H,W] with lanes that are channels-last, or all contiguous; the message begins with
// "function: argument".
void check_stacked(const at::Tensor& x, const char* function, const char* argument);

// Fails unless the tensor has these sizes; want is how the message writes them, "[L,C]".
void check_sizes(const at::Tensor& tensor, at::IntArrayRef sizes, const char* function, const char* argument,
                 const char* want);

// Fails unless the mask is undefined or [L,B] bool.
void check_mask(const at::Tensor& mask, int64_t lanes, int64_t batch, const char* function);

}  // namespace espalier::lanes
