// Pooling of all lanes. A thread owns a vector of channels; the winner of a window is found again from the
// input in the backward pass. Deterministic.
#include <algorithm>

#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/row_sums.cuh"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;

// One thread a vector of one window, odd edges (which no window covers) included backward.
template <class T, int kWidth, bool kBackward>
__global__ void __launch_bounds__(kThreads) max_pool_kernel(PoolArgs args, int high, int wide) {
  using W = wide_t<T>;
  const int lane = blockIdx.y, vectors = args.channels / kWidth;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= args.batch * high * wide * vectors) return;
  const int channel = index % vectors * kWidth, window = index / vectors;
  const int sample = window / (high * wide), rest = window - sample * high * wide;
  const int y = rest / wide, x = rest - y * wide;
  const int pooled_high = args.height / 2, pooled_wide = args.width / 2;
  const bool covered = y < pooled_high && x < pooled_wide;
  const T* const from = static_cast<const T*>(args.x.data) + lane * args.x.lane_stride + channel;
  const int64_t pooled =
      ((static_cast<int64_t>(sample) * pooled_high + y) * pooled_wide + x) * args.channels + channel;
  const auto pixel = [&](int i) {
    return ((static_cast<int64_t>(sample) * args.height + y * 2 + i / 2) * args.width + x * 2 + i % 2) *
           args.channels;
  };
  W values[4][kWidth] = {}, best[kWidth];
  int chosen[kWidth];
  if (covered)
#pragma unroll
    for (int i = 0; i < 4; ++i) load<T, kWidth>(values[i], from + pixel(i));
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {  // the first of equals; a NaN wins, as in torch
    best[j] = values[0][j];
    chosen[j] = 0;
#pragma unroll
    for (int i = 1; i < 4; ++i)
      if (values[i][j] > best[j] || values[i][j] != values[i][j]) {
        best[j] = values[i][j];
        chosen[j] = i;
      }
  }
  T* const out = static_cast<T*>(args.out.data) + lane * args.out.lane_stride;
  if (!kBackward) {
    store<T, kWidth>(out + pooled, best);
    return;
  }
  W grad[kWidth] = {};
  if (covered) load<T, kWidth>(grad, out + pooled);
  T* const grad_x = static_cast<T*>(args.grad_x.data) + lane * args.grad_x.lane_stride + channel;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (y * 2 + i / 2 >= args.height || x * 2 + i % 2 >= args.width) continue;
    W own[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) own[j] = covered && chosen[j] == i ? grad[j] : W(0);
    store<T, kWidth>(grad_x + pixel(i), own);
  }
}

// Few pixels: one thread a vector of a sample, which adds them up in their order.
constexpr int kFewPixels = 64;
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) average_few_kernel(PoolArgs args) {
  using W = wide_t<T>;
  const int lane = blockIdx.y, vectors = args.channels / kWidth, pixels = args.height * args.width;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= args.batch * vectors) return;
  const int sample = index / vectors, channel = index % vectors * kWidth;
  const T* const x = static_cast<const T*>(args.x.data) + lane * args.x.lane_stride +
                     static_cast<int64_t>(sample) * pixels * args.channels + channel;
  W sums[kWidth] = {};
#pragma unroll 8
  for (int pixel = 0; pixel < pixels; ++pixel) {
    W values[kWidth];
    load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[j] += values[j];
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sums[j] /= static_cast<W>(pixels);
  store<T, kWidth>(static_cast<T*>(args.out.data) + lane * args.out.lane_stride +
                       static_cast<int64_t>(sample) * args.channels + channel,
                   sums);
}

// Many: one block per sample, threads across vectors of channels and over pixels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) average_kernel(PoolArgs args, int across) {
  using W = wide_t<T>;
  __shared__ W shared[kWidth][kThreads];
  const int lane = blockIdx.y, sample = blockIdx.x;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  const int pixels = args.height * args.width, vectors = args.channels / kWidth, rows = kThreads / across;
  const int tx = threadIdx.x % across, ty = threadIdx.x / across;
  const T* const x = static_cast<const T*>(args.x.data) + lane * args.x.lane_stride +
                     static_cast<int64_t>(sample) * pixels * args.channels;
  T* const out = static_cast<T*>(args.out.data) + lane * args.out.lane_stride +
                 static_cast<int64_t>(sample) * args.channels;
  for (int first = 0; first < vectors; first += across) {
    const int vector = first + tx;
    W sums[kWidth] = {};
    if (vector < vectors)
      for (int pixel = ty; pixel < pixels; pixel += rows) {
        W values[kWidth];
        load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels + vector * kWidth);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums[j] += values[j];
      }
    add_rows<kThreads>(across, sums, shared);
    if (ty == 0 && vector < vectors) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] /= static_cast<W>(pixels);
      store<T, kWidth>(out + vector * kWidth, sums);
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) average_backward_kernel(PoolArgs args) {
  using W = wide_t<T>;
  const int lane = blockIdx.y, vectors = args.channels / kWidth, pixels = args.height * args.width;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= args.batch * pixels * vectors) return;
  const int channel = index % vectors * kWidth, pixel = index / vectors;
  W values[kWidth];
  load<T, kWidth>(values, static_cast<const T*>(args.out.data) + lane * args.out.lane_stride +
                              static_cast<int64_t>(pixel / pixels) * args.channels + channel);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) values[j] /= static_cast<W>(pixels);
  store<T, kWidth>(static_cast<T*>(args.grad_x.data) + lane * args.grad_x.lane_stride +
                       static_cast<int64_t>(pixel) * args.channels + channel,
                   values);
}

enum class Pass { kMax, kMaxBackward, kAverage, kAverageBackward };

template <class T, int kWidth>
cudaError_t launch(Pass pass, const PoolArgs& args, cudaStream_t stream) {
  const int vectors = args.channels / kWidth;
  const auto blocks = [&](int items) {
    return dim3((items * vectors + kThreads - 1) / kThreads, args.lanes);
  };
  int across = 1;
  while (across * 2 <= std::min(vectors, kThreads)) across *= 2;
  switch (pass) {
    case Pass::kMax: {
      const int high = args.height / 2, wide = args.width / 2;
      max_pool_kernel<T, kWidth, false>
          <<<blocks(args.batch * high * wide), kThreads, 0, stream>>>(args, high, wide);
      break;
    }
    case Pass::kMaxBackward: {
      const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;
      max_pool_kernel<T, kWidth, true>
          <<<blocks(args.batch * high * wide), kThreads, 0, stream>>>(args, high, wide);
      break;
    }
    case Pass::kAverage:
      if (sizeof(T) == 2 && args.height * args.width <= kFewPixels)
        average_few_kernel<T, kWidth><<<blocks(args.batch), kThreads, 0, stream>>>(args);
      else
        average_kernel<T, kWidth><<<dim3(args.batch, args.lanes), kThreads, 0, stream>>>(args, across);
      break;
    case Pass::kAverageBackward:
      average_backward_kernel<T, kWidth>
          <<<blocks(args.batch * args.height * args.width), kThreads, 0, stream>>>(args);
      break;
  }
  return cudaGetLastError();
}

template <class T>
cudaError_t launch(Pass pass, const PoolArgs& args, cudaStream_t stream) {
  constexpr int kVector = 16 / sizeof(T);
  return args.channels % kVector == 0 ? launch<T, kVector>(pass, args, stream)
                                      : launch<T, 1>(pass, args, stream);
}

cudaError_t launch(Pass pass, const PoolArgs& args, cudaStream_t stream) {
  return for_type(args.type, [&](auto value) { return launch<decltype(value)>(pass, args, stream); });
}

}  // namespace

cudaError_t launch_max_pool_forward(const PoolArgs& args, cudaStream_t stream) {
  return launch(Pass::kMax, args, stream);
}
cudaError_t launch_max_pool_backward(const PoolArgs& args, cudaStream_t stream) {
  return launch(Pass::kMaxBackward, args, stream);
}
cudaError_t launch_average_pool_forward(const PoolArgs& args, cudaStream_t stream) {
  return launch(Pass::kAverage, args, stream);
}
cudaError_t launch_average_pool_backward(const PoolArgs& args, cudaStream_t stream) {
  return launch(Pass::kAverageBackward, args, stream);
}

}  // namespace espalier::lanes
