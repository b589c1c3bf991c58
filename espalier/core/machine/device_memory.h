// Memory of one CUDA device, as the driver sees it now.
#pragma once

#include <cstdint>
#include <optional>

namespace espalier {

struct DeviceMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

// Nothing where there is no such device, no driver, or no CUDA in this build. Starts CUDA on the device.
std::optional<DeviceMemory> cuda_memory(int device_index);

// What starting CUDA on the device takes from it, before anything is allocated: measured by starting it, so
// only the first call in a process can tell, and only where the driver's management library is there. 0: not
// known.
int64_t measure_cuda_context(int device_index);

}  // namespace espalier
