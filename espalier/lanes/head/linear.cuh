// What the kernels of linear maps share: sums over a warp, and the gradients of one output's weights.
#pragma once

#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes::linear_map {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

template <class W>
__device__ inline W warp_sum(W value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// The sum of an output's gradient over all samples, in the first thread of a block. shared: [kWarps].
template <class W>
__device__ inline W batch_sum(const W* grad, const LinearArgs& args, W* shared) {
  W sum = 0;
  for (int sample = threadIdx.x; sample < args.batch; sample += kThreads)
    sum += grad[static_cast<int64_t>(sample) * args.out_features];
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = sum;
  __syncthreads();
  for (int warp = 1; threadIdx.x == 0 && warp < kWarps; ++warp) sum += shared[warp];
  return sum;
}

// One output's weights and bias. Threads: 32 inputs across, 8 share the samples out; for the bias all do.
// shared: [kThreads].
template <class T>
__device__ inline void grad_weight_row(const LinearArgs& args, int lane, int o, wide_t<T>* shared) {
  using W = wide_t<T>;
  const int tx = threadIdx.x % kWarp, ty = threadIdx.x / kWarp;
  const T* const x = static_cast<const T*>(args.x.data) + lane * args.x.lane_stride;
  const W* const grad = static_cast<const W*>(args.out.data) + lane * args.out.lane_stride + o;
  if (args.grad_bias.data != nullptr) {
    const W sum = batch_sum(grad, args, shared);
    if (threadIdx.x == 0) (static_cast<W*>(args.grad_bias.data) + lane * args.grad_bias.lane_stride)[o] = sum;
  }
  if (args.grad_weight.data == nullptr) return;
  W* const grad_weight = static_cast<W*>(args.grad_weight.data) + lane * args.grad_weight.lane_stride +
                         static_cast<int64_t>(o) * args.in_features;
  for (int first = 0; first < args.in_features; first += kWarp) {
    const int i = first + tx;
    W sum = 0;
    if (i < args.in_features)
      for (int sample = ty; sample < args.batch; sample += kWarps)
        sum += grad[static_cast<int64_t>(sample) * args.out_features] *
               widen<T>(x[static_cast<int64_t>(sample) * args.in_features + i]);
    __syncthreads();
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (ty != 0) continue;
    for (int other = 1; other < kWarps; ++other) sum += shared[tx + other * kWarp];
    if (i < args.in_features) grad_weight[i] = sum;
  }
}

}  // namespace espalier::lanes::linear_map
