#include "espalier/tensor/pinned.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>

#include "espalier/core/error.h"
#if ESPALIER_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace espalier {

at::Tensor pin_in_place(const at::Tensor& tensor) {
#if ESPALIER_WITH_CUDA
  if (at::globalContext().hasCUDA() && tensor.nbytes() > 0) {
    void* memory = tensor.mutable_data_ptr();
    const cudaError_t status =
        cudaHostRegister(memory, tensor.nbytes(), cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (status != cudaSuccess)
      fail(
          "cannot pin {} bytes of host memory: {}; raise the limit of locked memory (ulimit -l), or use "
          "--residency device",
          tensor.nbytes(), cudaGetErrorString(status));
    // The deleter holds the original tensor, so the memory outlives its registration.
    return at::from_blob(
        memory, tensor.sizes(), tensor.strides(), [tensor](void* p) { cudaHostUnregister(p); },
        tensor.options());
  }
#endif
  return tensor;
}

}  // namespace espalier
