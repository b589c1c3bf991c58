// Memory of one CUDA device, as the driver sees it now.
#pragma once

#include <cstdint>
#include <optional>

namespace espalier {

struct DeviceMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

// Nothing where there is no such device, no driver, or no CUDA in this build.
std::optional<DeviceMemory> cuda_memory(int device_index);

}  // namespace espalier
