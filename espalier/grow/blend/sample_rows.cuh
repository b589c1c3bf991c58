// What the kernels over seeds share: a block does one sample of one lane (blockIdx.x, blockIdx.y), its
// threads the sample's values, 16 bytes at a time where a sample is a whole number of those.
#pragma once

#include <algorithm>

#include "espalier/lanes/vector_access.cuh"

namespace espalier::grow {

constexpr int kWarp = 32;
constexpr int kMostThreads = 256;

// How a sample is shared out, and so the order of its sums, depends on its size alone.
inline int threads_for(int vectors) {
  return std::clamp((vectors + kWarp - 1) / kWarp * kWarp, kWarp, kMostThreads);
}

// Calls launch(value of the C++ type, width) with the values that one access takes.
template <class Launch>
cudaError_t for_width(lanes::KernelType type, int values, Launch&& launch) {
  return lanes::for_type(type, [&](auto value) {
    constexpr int kVector = 16 / sizeof(value);
    return values % kVector == 0 ? launch(value, std::integral_constant<int, kVector>())
                                 : launch(value, std::integral_constant<int, 1>());
  });
}

// The block's sample, of `values` values.
template <class T>
__device__ inline T* sample_of(const lanes::Stack& stack, int64_t lane, int values) {
  return static_cast<T*>(stack.data) + lane * stack.lane_stride + static_cast<int64_t>(blockIdx.x) * values;
}

// Not through arithmetic: a NaN keeps its bits.
template <class T, int kWidth>
__device__ inline void copy_bits(T* to, const T* from) {
  *reinterpret_cast<lanes::Pack<T, kWidth>*>(to) = *reinterpret_cast<const lanes::Pack<T, kWidth>*>(from);
}

// The sum over a block's threads, in the first of them; in a fixed order. Once a kernel, by all threads.
template <class S>
__device__ inline S block_sum(S value) {
  __shared__ S warps[kMostThreads / kWarp];
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_down_sync(~0u, value, offset);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < static_cast<int>(blockDim.x) / kWarp; ++i) value += warps[i];
  return value;
}

}  // namespace espalier::grow
