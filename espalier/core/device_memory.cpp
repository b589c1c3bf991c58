#include "espalier/core/device_memory.h"

#if ESPALIER_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace espalier {

std::optional<DeviceMemory> cuda_memory([[maybe_unused]] int device_index) {
#if ESPALIER_WITH_CUDA
  int before = 0;
  if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device_index) != cudaSuccess) {
    (void)cudaGetLastError();  // asked and answered: leave no error behind
    return std::nullopt;
  }
  size_t free_bytes = 0, total_bytes = 0;
  const bool known = cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess;
  (void)cudaSetDevice(before);
  if (known) return DeviceMemory{static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
  (void)cudaGetLastError();
#endif
  return std::nullopt;
}

}  // namespace espalier
