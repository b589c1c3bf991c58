#include "espalier/core/machine/cuda_info.h"

#include <fmt/format.h>

#if ESPALIER_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace espalier {

#if ESPALIER_WITH_CUDA
namespace {

CudaDeviceInfo query_device(int index) {
  CudaDeviceInfo info;
  cudaDeviceProp properties{};
  cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error == cudaSuccess) {
    info.name = properties.name;
    info.major = properties.major;
    info.minor = properties.minor;
    info.num_multiprocessors = properties.multiProcessorCount;
    error = cudaSetDevice(index);
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  info.total_bytes = static_cast<int64_t>(total_bytes);
  if (error != cudaSuccess) info.problem = cudaGetErrorString(error);
  return info;
}

}  // namespace

CudaInfo query_cuda_versions() {
  CudaInfo info;
  info.is_built = true;
  // Both leave 0 where they fail: that is what the fields mean.
  if (cudaRuntimeGetVersion(&info.runtime_version) != cudaSuccess) info.runtime_version = 0;
  if (cudaDriverGetVersion(&info.driver_version) != cudaSuccess) info.driver_version = 0;
  return info;
}

CudaInfo query_cuda() {
  CudaInfo info = query_cuda_versions();
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess) {
    info.problem = cudaGetErrorString(error);
    num_devices = 0;
  }
  for (int index = 0; index < num_devices; ++index) info.devices.push_back(query_device(index));
  if (num_devices > 0) cudaSetDevice(0);
  cudaGetLastError();  // an error stays with the runtime until it is read, and would surface in torch
  return info;
}
#else
CudaInfo query_cuda_versions() {
  return {};
}
CudaInfo query_cuda() {
  return {};
}
#endif

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace espalier
