// Host memory that a GPU can read by itself.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier {

// Page-locks the tensor's memory where it lies, for as long as the tensor's storage lives, and returns a
// tensor over it. In place, since torch's own pinned allocator rounds sizes up to a power of two: half of a
// large dataset's memory could be lost. Does nothing on a machine without CUDA.
at::Tensor pin_in_place(const at::Tensor& tensor);

}  // namespace espalier
