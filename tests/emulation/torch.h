// What ops ask torch about devices, for emulated kernels: there is one device, the CPU, and no streams.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "tests/emulation/emulator.h"

namespace espalier::emulate {

class CUDAGuard {
 public:
  explicit CUDAGuard(c10::Device) {}
};

class CUDAStream {
 public:
  cudaStream_t stream() const { return nullptr; }
  operator cudaStream_t() const { return nullptr; }
};

inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) {
  return {};
}

}  // namespace espalier::emulate

#define C10_CUDA_CHECK(...)                                                                   \
  do {                                                                                        \
    const cudaError_t emulated_error = __VA_ARGS__;                                           \
    TORCH_CHECK(emulated_error == cudaSuccess, "an emulated launch was refused: CUDA error ", \
                static_cast<int>(emulated_error));                                            \
  } while (false)
