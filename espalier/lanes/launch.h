// What every op that has a CUDA kernel needs to launch it.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "espalier/lanes/arguments.h"
#include "espalier/lanes/kernel.h"

namespace espalier::lanes {

inline cudaStream_t stream_of(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

}  // namespace espalier::lanes
