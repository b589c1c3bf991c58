// Pooling of all lanes. A thread owns a vector of channels; the winner of a window is found again from the
// input in the backward pass. Deterministic.
#include <algorithm>

#include "espalier/core/random/divisor.h"
#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/pair.cuh"
#include "espalier/lanes/row_sums.cuh"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;

// How threads are counted: vectors of channels, windows of a row, windows of a sample.
struct PoolThreads {
  Divisor vectors, a_row, a_sample;
};

// The largest of each of a window's four values; or, backward, the window's gradient where that was found,
// and 0 elsewhere. The first of equals; a NaN wins, as in torch.
template <class T, int kWidth, bool kBackward>
__device__ __forceinline__ void pool_window(Pack<T, kWidth> (&values)[4], const Pack<T, kWidth>& grad,
                                            bool covered) {
  using W = wide_t<T>;
  if constexpr (kIsPaired<T, kWidth>) {
#pragma unroll
    for (int p = 0; p < kWidth / 2; ++p) {
      pair_t<T> four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = pair_of(values[i], p);
      const Winners<pair_t<T>> winners(four);
      if (!kBackward) set_pair(values[0], p, winners.best);
      const pair_t<T> g = where(covered ? ~0u : 0u, pair_of(grad, p));
      if (kBackward)
#pragma unroll
        for (int i = 0; i < 4; ++i) set_pair(values[i], p, where(winners.mask(i), g));
    }
  } else {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      W best = widen<T>(values[0].value[j]);
      int chosen = 0;
#pragma unroll
      for (int i = 1; i < 4; ++i) {
        const W value = widen<T>(values[i].value[j]);
        if (!(value > best || value != value)) continue;
        best = value;
        chosen = i;
      }
      if (!kBackward) values[0].value[j] = narrow<T>(best);
      if (kBackward)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          values[i].value[j] = covered && i == chosen ? grad.value[j] : narrow<T>(W(0));
    }
  }
}

// One thread a vector of one window, odd edges (which no window covers) included backward.
template <class T, int kWidth, bool kBackward>
__global__ void __launch_bounds__(kThreads) max_pool_kernel(PoolArgs args, PoolThreads threads) {
  const int lane = blockIdx.y;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  const auto index = static_cast<uint32_t>(blockIdx.x * kThreads + threadIdx.x);
  const uint32_t window = threads.vectors.quotient(index);
  const int channel = static_cast<int>(index - window * threads.vectors.divisor) * kWidth;
  const uint32_t sample = threads.a_sample.quotient(window),
                 rest = window - sample * threads.a_sample.divisor;
  if (sample >= static_cast<uint32_t>(args.batch)) return;
  const int y = static_cast<int>(threads.a_row.quotient(rest)),
            x = static_cast<int>(rest - y * threads.a_row.divisor);
  const int pooled_high = args.height / 2, pooled_wide = args.width / 2;
  const bool covered = y < pooled_high && x < pooled_wide;
  const int64_t pooled =
      ((static_cast<int64_t>(sample) * pooled_high + y) * pooled_wide + x) * args.channels + channel;
  const int64_t first = ((static_cast<int64_t>(sample) * args.height + y * 2) * args.width + x * 2) *
                            static_cast<int64_t>(args.channels) +
                        channel;
  const auto pixel = [&](int i) {
    return first + static_cast<int64_t>(i / 2 * args.width + i % 2) * args.channels;
  };
  const T* const from = static_cast<const T*>(args.x.data) + lane * args.x.lane_stride;
  T* const out = static_cast<T*>(args.out.data) + lane * args.out.lane_stride;
  Pack<T, kWidth> values[4] = {}, grad = {};
  if (covered) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = *reinterpret_cast<const Pack<T, kWidth>*>(from + pixel(i));
    if (kBackward) grad = *reinterpret_cast<const Pack<T, kWidth>*>(out + pooled);
  }
  pool_window<T, kWidth, kBackward>(values, grad, covered);
  if (!kBackward) {
    *reinterpret_cast<Pack<T, kWidth>*>(out + pooled) = values[0];
    return;
  }
  T* const grad_x = static_cast<T*>(args.grad_x.data) + lane * args.grad_x.lane_stride;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (y * 2 + i / 2 < args.height && x * 2 + i % 2 < args.width)
      *reinterpret_cast<Pack<T, kWidth>*>(grad_x + pixel(i)) = values[i];
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
  const auto threads_over = [&](int high, int wide) {
    const auto divisor = [](int64_t count) { return Divisor(static_cast<uint32_t>(count)); };
    return PoolThreads{divisor(vectors), divisor(wide), divisor(high * wide)};
  };
  int across = 1;
  while (across * 2 <= std::min(vectors, kThreads)) across *= 2;
  switch (pass) {
    case Pass::kMax: {
      const int high = args.height / 2, wide = args.width / 2;
      max_pool_kernel<T, kWidth, false>
          <<<blocks(args.batch * high * wide), kThreads, 0, stream>>>(args, threads_over(high, wide));
      break;
    }
    case Pass::kMaxBackward: {
      const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;
      max_pool_kernel<T, kWidth, true>
          <<<blocks(args.batch * high * wide), kThreads, 0, stream>>>(args, threads_over(high, wide));
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
