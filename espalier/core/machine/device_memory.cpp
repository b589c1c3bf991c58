#include "espalier/core/machine/device_memory.h"

#if ESPALIER_WITH_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#endif

namespace espalier {

#if ESPALIER_WITH_CUDA
namespace {

// The management library (NVML) tells a device's memory without starting CUDA on it. It comes with the
// driver, so it is opened at run time; the few calls we need are declared here after its documentation.
class ManagementLibrary {
 public:
  ManagementLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    const auto init = find<int (*)()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == 0;
  }
  ~ManagementLibrary() {
    if (ready_) find<int (*)()>("nvmlShutdown")();
    if (library_ != nullptr) dlclose(library_);
  }
  ManagementLibrary(const ManagementLibrary&) = delete;
  ManagementLibrary& operator=(const ManagementLibrary&) = delete;

  // Bytes in use on the device at this bus address; -1: not known.
  int64_t used_bytes(const char* bus_id) const {
    if (!ready_) return -1;
    const auto handle_of = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    struct Memory {
      unsigned long long total, free, used;
    } memory{};
    const auto memory_of = find<int (*)(void*, Memory*)>("nvmlDeviceGetMemoryInfo");
    void* device = nullptr;
    if (handle_of == nullptr || memory_of == nullptr || handle_of(bus_id, &device) != 0 ||
        memory_of(device, &memory) != 0)
      return -1;
    return static_cast<int64_t>(memory.used);
  }

 private:
  template <class Function>
  Function find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_;
  bool ready_ = false;
};

}  // namespace
#endif

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

int64_t measure_cuda_context([[maybe_unused]] int device_index) {
#if ESPALIER_WITH_CUDA
  static std::map<int, int64_t> measured;  // asked for by the command line, from one thread
  const auto found = measured.find(device_index);
  if (found != measured.end()) return found->second;
  char bus_id[32];
  if (cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device_index) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  const ManagementLibrary library;
  const int64_t before = library.used_bytes(bus_id);
  if (before < 0 || !cuda_memory(device_index)) return 0;
  return measured[device_index] = std::max<int64_t>(0, library.used_bytes(bus_id) - before);
#else
  return 0;
#endif
}

}  // namespace espalier
