// What CUDA says about this machine, without torch and without a CUDA header: versions, devices, free memory.
// Works where there is no GPU, no driver, or no CUDA in this build: then it says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

struct CudaDeviceInfo {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int num_multiprocessors = 0;
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  std::string problem;  // why the device could not be opened; empty: it could
};

struct CudaInfo {
  bool is_built = false;    // this program was built with CUDA
  int runtime_version = 0;  // 13000 is 13.0
  int driver_version = 0;   // the newest CUDA the driver can serve; 0: no driver
  std::string problem;      // what asking for the devices answered; empty: no error
  std::vector<CudaDeviceInfo> devices;
};

// Opens a context on every device, as free memory cannot be asked for without (some hundred MB, a second).
CudaInfo query_cuda();

// Asks for versions only: touches no device.
CudaInfo query_cuda_versions();

// 13000 -> "13.0".
std::string cuda_version_text(int version);

}  // namespace espalier
