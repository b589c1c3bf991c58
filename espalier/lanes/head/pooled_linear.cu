// The mean over a sample's pixels and the linear map of it. One warp per sample forward: its threads lie over
// vectors of channels and over pixels, keep the means in shared memory, and share every output's sum out.
// Backward the first blocks have samples, whose gradient every pixel gets its part of, and the others outputs
// (linear.cuh). Deterministic: sums are shared out over a warp or block by the shape of a lane alone.
#include <algorithm>

#include "espalier/lanes/head/linear.cuh"

namespace espalier::lanes {
namespace {

using namespace linear_map;

// across: threads of a warp over vectors of channels, a power of two; the others over pixels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) forward_kernel(PooledLinearArgs args, int across) {
  using W = wide_t<T>;
  __shared__ W shared[kWarps][kMostPooledChannels];
  const LinearArgs& linear = args.linear;
  const int lane = blockIdx.y, warp = threadIdx.x / kWarp, sample = blockIdx.x * kWarps + warp;
  const int thread = threadIdx.x % kWarp, channels = linear.in_features, vectors = channels / kWidth;
  if (sample >= linear.batch || (linear.entries != nullptr && linear.entries[lane] < 0)) return;
  W* const means = shared[warp];
  const T* const x = static_cast<const T*>(args.images.data) + lane * args.images.lane_stride +
                     static_cast<int64_t>(sample) * args.pixels * channels;
  T* const pooled =
      static_cast<T*>(linear.x.data) + lane * linear.x.lane_stride + static_cast<int64_t>(sample) * channels;
  for (int first = 0; first < vectors; first += across) {
    const int vector = first + thread % across;
    W sums[kWidth] = {};
    if (vector < vectors)
#pragma unroll 4
      for (int pixel = thread / across; pixel < args.pixels; pixel += kWarp / across) {
        W values[kWidth];
        load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * channels + vector * kWidth);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums[j] += values[j];
      }
    for (int step = across; step < kWarp; step *= 2)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] += __shfl_xor_sync(0xffffffffu, sums[j], step);
    if (thread >= across || vector >= vectors) continue;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const T mean = narrow<T>(sums[j] / static_cast<W>(args.pixels));
      pooled[vector * kWidth + j] = mean;
      means[vector * kWidth + j] = widen<T>(mean);
    }
  }
  __syncwarp();
  const W* const weight = static_cast<const W*>(linear.weight.data) + lane * linear.weight.lane_stride;
  W* const out = static_cast<W*>(linear.out.data) + lane * linear.out.lane_stride +
                 static_cast<int64_t>(sample) * linear.out_features;
  for (int o = 0; o < linear.out_features; ++o) {
    W sum = 0;
    for (int i = thread; i < channels; i += kWarp)
      sum += means[i] * weight[static_cast<int64_t>(o) * channels + i];
    sum = warp_sum(sum);
    if (thread != 0) continue;
    out[o] = linear.bias.data == nullptr
                 ? sum
                 : sum + (static_cast<const W*>(linear.bias.data) + lane * linear.bias.lane_stride)[o];
  }
}

// One sample's gradient by a warp: that of its means, rounded as they are, and every pixel's part of it.
template <class T, int kWidth>
__device__ inline void grad_images(const PooledLinearArgs& args, int lane, int sample, wide_t<T>* means) {
  using W = wide_t<T>;
  const LinearArgs& linear = args.linear;
  const int thread = threadIdx.x % kWarp, channels = linear.in_features, vectors = channels / kWidth;
  const W* const grad = static_cast<const W*>(linear.out.data) + lane * linear.out.lane_stride +
                        static_cast<int64_t>(sample) * linear.out_features;
  const W* const weight = static_cast<const W*>(linear.weight.data) + lane * linear.weight.lane_stride;
  for (int i = thread; i < channels; i += kWarp) {
    W sum = 0;
    for (int o = 0; o < linear.out_features; ++o)
      sum += grad[o] * weight[static_cast<int64_t>(o) * channels + i];
    means[i] = widen<T>(narrow<T>(sum)) / static_cast<W>(args.pixels);
  }
  __syncwarp();
  T* const to = static_cast<T*>(args.images.data) + lane * args.images.lane_stride +
                static_cast<int64_t>(sample) * args.pixels * channels;
  for (int i = thread; i < args.pixels * vectors; i += kWarp) {
    W values[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = means[i % vectors * kWidth + j];
    store<T, kWidth>(to + static_cast<int64_t>(i) * kWidth, values);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) backward_kernel(PooledLinearArgs args, int sample_blocks) {
  using W = wide_t<T>;
  __shared__ W shared[kWarps][kMostPooledChannels];
  const LinearArgs& linear = args.linear;
  const int lane = blockIdx.y, block = blockIdx.x, warp = threadIdx.x / kWarp;
  if (linear.entries != nullptr && linear.entries[lane] < 0) return;
  if (block >= sample_blocks) return grad_weight_row<T>(linear, lane, block - sample_blocks, shared[0]);
  const int sample = block * kWarps + warp;
  if (sample < linear.batch) grad_images<T, kWidth>(args, lane, sample, shared[warp]);
}

template <class T, int kWidth>
cudaError_t launch(const PooledLinearArgs& args, bool backward, cudaStream_t stream) {
  const LinearArgs& linear = args.linear;
  const dim3 samples((linear.batch + kWarps - 1) / kWarps, linear.lanes);
  if (!backward) {
    int across = 1;
    while (across * 2 <= std::min(linear.in_features / kWidth, kWarp)) across *= 2;
    forward_kernel<T, kWidth><<<samples, kThreads, 0, stream>>>(args, across);
    return cudaGetLastError();
  }
  const unsigned sample_blocks = args.images.data != nullptr ? samples.x : 0;
  const bool has_outputs = linear.grad_weight.data != nullptr || linear.grad_bias.data != nullptr;
  const dim3 blocks(sample_blocks + (has_outputs ? linear.out_features : 0), linear.lanes);
  if (blocks.x > 0)
    backward_kernel<T, kWidth><<<blocks, kThreads, 0, stream>>>(args, static_cast<int>(sample_blocks));
  return cudaGetLastError();
}

cudaError_t launch(const PooledLinearArgs& args, bool backward, cudaStream_t stream) {
  return for_type(args.linear.type, [&](auto value) {
    using T = decltype(value);
    constexpr int kVector = 16 / sizeof(T);
    return args.linear.in_features % kVector == 0 ? launch<T, kVector>(args, backward, stream)
                                                  : launch<T, 1>(args, backward, stream);
  });
}

}  // namespace

cudaError_t launch_pooled_linear_forward(const PooledLinearArgs& args, cudaStream_t stream) {
  return launch(args, /*backward=*/false, stream);
}

cudaError_t launch_pooled_linear_backward(const PooledLinearArgs& args, cudaStream_t stream) {
  return launch(args, /*backward=*/true, stream);
}

}  // namespace espalier::lanes
