// From tensors to plain pointers: what every op does before its kernel, or its own loop on the CPU, runs.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/pointers.h"
#include "espalier/lanes/stack.h"

namespace espalier::lanes {

inline bool has_kernel_type(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}

inline KernelType kernel_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return KernelType::kF32;
    case at::kDouble:
      return KernelType::kF64;
    case at::kBFloat16:
      return KernelType::kBf16;
    default:
      return KernelType::kF16;
  }
}

// The type that kernels sum in, and have their parameters in.
inline at::ScalarType wide_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

inline Stack stack_of(const at::Tensor& lanes) {
  return lanes.defined() ? Stack{lanes.data_ptr(), lanes.stride(0)} : Stack{};
}

inline const int64_t* entries_of(const at::Tensor& entries) {
  return entries.defined() ? entries.const_data_ptr<int64_t>() : nullptr;
}

// Whether every lane begins where a kernel may read 16 bytes at once: always so for what lane ops make.
inline bool is_vector_aligned(const at::Tensor& lanes) {
  const auto item = static_cast<int64_t>(lanes.element_size());
  return reinterpret_cast<uintptr_t>(lanes.data_ptr()) % 16 == 0 &&
         (lanes.size(0) == 1 || lanes.stride(0) * item % 16 == 0);
}

// The stack as kernels want it: itself, or a copy of one that torch laid out.
inline at::Tensor for_kernel(const at::Tensor& stacked, MemoryFormat format = MemoryFormat::kChannelsLast) {
  const at::Tensor lanes = as_lanes(stacked, format);
  if (is_vector_aligned(lanes)) return lanes;
  const at::Tensor copy = empty_lanes(lanes.sizes(), lanes.options(), format);
  copy.copy_(lanes);
  return copy;
}

// [L,B,...] with dense rows in every lane, beginning on 16 bytes: itself, or a copy. What all lanes share
// keeps its stride of 0.
inline at::Tensor dense_lanes(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.size(0) == 0) return tensor;
  if (tensor.select(0, 0).is_contiguous() && is_vector_aligned(tensor)) return tensor;
  const at::Tensor copy = empty_lanes(tensor.sizes(), tensor.options());
  copy.copy_(tensor);
  return copy;
}

// [L,B] or [L,C] with dense rows: itself, or a copy. Not a plain clone(), which keeps a transposition.
inline at::Tensor dense_rows(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.size(1) <= 1 || tensor.stride(1) == 1
             ? tensor
             : tensor.clone(c10::MemoryFormat::Contiguous);
}

// [L,...] parameters in the type that kernels want: itself where it is.
inline at::Tensor as_wide(const at::Tensor& parameter, at::ScalarType wide) {
  return parameter.scalar_type() == wide ? parameter : parameter.to(wide);
}

}  // namespace espalier::lanes
