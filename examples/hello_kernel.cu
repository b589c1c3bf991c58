// Runs an empty kernel on every GPU and counts those on which it ran.
#include <cuda_runtime.h>

__global__ void hello() {}

int hello_kernel_devices() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return 0;
  int ran = 0;
  for (int device = 0; device < devices; ++device) {
    if (cudaSetDevice(device) != cudaSuccess) continue;
    hello<<<1, 1>>>();
    if (cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess) ++ran;
  }
  return ran;
}
