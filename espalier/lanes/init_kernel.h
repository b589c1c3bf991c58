// Kernel of init_uniform_(), without torch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace espalier::lanes {

inline constexpr int kMostInitAxes = 4;  // within one lane

struct InitUniformArgs {
  void* data = nullptr;  // f32, or f64
  bool is_double = false;
  int64_t lanes = 0;
  int64_t lane_stride = 0;
  int64_t values = 0;  // per lane
  int32_t num_axes = 0;
  int64_t sizes[kMostInitAxes] = {};
  int64_t strides[kMostInitAxes] = {};
  double bound = 0;
  uint64_t seed = 0;
  uint32_t first_lane = 0;
  uint32_t name = 0;  // hash of the parameter's
};

cudaError_t launch_init_uniform(const InitUniformArgs& args, cudaStream_t stream);

}  // namespace espalier::lanes
