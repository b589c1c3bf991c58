// Makes one stream wait for the work that another was given before; the host does not wait.
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

namespace espalier {

inline void wait_for(const c10::cuda::CUDAStream& waiting, const c10::cuda::CUDAStream& earlier) {
  at::cuda::CUDAEvent event;
  event.record(earlier);
  event.block(waiting);
}

}  // namespace espalier
