// Thread mapping: sample_rows.cuh. The gradient of a scale: threads across vectors of channels and over
// pixels, as in the average pool.
#include "espalier/grow/blend/sample_rows.cuh"
#include "espalier/grow/seeds/branch_kernel.h"

namespace espalier::grow {
namespace {

using lanes::load;
using lanes::store;
using lanes::sum_t;
using lanes::wide_t;

__device__ inline bool is_empty(const BranchArgs& args) {
  return args.active != nullptr && args.active[blockIdx.y] < 0;
}

template <class T, int kWidth, Formula kFormula>
__global__ void __launch_bounds__(kMostThreads) formula_kernel(BranchArgs args) {
  using W = wide_t<T>;
  if (is_empty(args)) return;
  const int entry = blockIdx.y, values = args.values;
  const T* const from = sample_of<const T>(args.a, entry, values);
  const T* const second = has_second(kFormula) ? sample_of<const T>(args.b, entry, values) : nullptr;
  T* const to = sample_of<T>(args.out, entry, values);
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth) {
    W a[kWidth], b[kWidth] = {};
    load<T, kWidth>(a, from + i);
    if (has_second(kFormula)) load<T, kWidth>(b, second + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) a[j] = formula_of<kFormula>(a[j], b[j]);
    store<T, kWidth>(to + i, a);
  }
}

// An entry's one value, [E].
template <class W>
__device__ inline W& entry_value(const lanes::Stack& stack) {
  return static_cast<W*>(stack.data)[blockIdx.y * stack.lane_stride];
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kMostThreads) mix_kernel(MixArgs args) {
  using W = wide_t<T>;
  if (is_empty(args.branches)) return;
  const int entry = blockIdx.y, values = args.branches.values;
  const T* const x = sample_of<const T>(args.branches.a, entry, values);
  const T* const y = sample_of<const T>(args.branches.b, entry, values);
  T* const to = sample_of<T>(args.branches.out, entry, values);
  const W t = entry_value<W>(args.t);
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth) {
    W a[kWidth], b[kWidth];
    load<T, kWidth>(a, x + i);
    load<T, kWidth>(b, y + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) a[j] = mixed(a[j], b[j], t);
    store<T, kWidth>(to + i, a);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kMostThreads) mix_backward_kernel(MixArgs args) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  if (is_empty(args.branches)) return;
  const int entry = blockIdx.y, values = args.branches.values;
  const T* const x = sample_of<const T>(args.branches.a, entry, values);
  const T* const y = sample_of<const T>(args.branches.b, entry, values);
  const T* const grads = sample_of<const T>(args.branches.out, entry, values);
  T* const grad_x = sample_of<T>(args.grad_x, entry, values);
  T* const grad_y = sample_of<T>(args.grad_y, entry, values);
  const W t = entry_value<W>(args.t);
  S sum = 0;  // G (y - x) over the entry
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth) {
    W a[kWidth], b[kWidth], grad[kWidth];
    load<T, kWidth>(a, x + i);
    load<T, kWidth>(b, y + i);
    load<T, kWidth>(grad, grads + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      sum += static_cast<S>(grad[j]) * (static_cast<S>(b[j]) - static_cast<S>(a[j]));
      a[j] = grad[j] * (W(1) - t);
      b[j] = grad[j] * t;
    }
    store<T, kWidth>(grad_x + i, a);
    store<T, kWidth>(grad_y + i, b);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0)
    static_cast<S*>(args.partial)[static_cast<int64_t>(entry) * args.branches.batch + blockIdx.x] = sum;
}

// One block per entry: the shares of its samples.
template <class T>
__global__ void __launch_bounds__(kMostThreads) add_samples_kernel(MixArgs args) {
  using S = sum_t<T>;
  if (is_empty(args.branches)) return;
  const S* const shares =
      static_cast<const S*>(args.partial) + static_cast<int64_t>(blockIdx.y) * args.branches.batch;
  S sum = 0;
  for (int sample = threadIdx.x; sample < args.branches.batch; sample += blockDim.x) sum += shares[sample];
  sum = block_sum(sum);
  if (threadIdx.x == 0) entry_value<wide_t<T>>(args.grad_t) = static_cast<wide_t<T>>(sum);
}

// The block's factors, [C].
template <class W>
__device__ inline W* factors_of(const lanes::Stack& scale, int channels) {
  return sample_of<W>(scale, blockIdx.y, channels);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kMostThreads) scale_kernel(ScaleArgs args) {
  using W = wide_t<T>;
  if (is_empty(args.branches)) return;
  const int entry = blockIdx.y, values = args.branches.values, channels = args.branches.channels;
  const T* const x = sample_of<const T>(args.branches.a, entry, values);
  T* const to = sample_of<T>(args.branches.out, entry, values);
  const W* const factors = factors_of<const W>(args.scale, channels);
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth) {
    W a[kWidth];
    load<T, kWidth>(a, x + i);
    const int channel = i % channels;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) a[j] *= factors[channel + j];
    store<T, kWidth>(to + i, a);
  }
}

// across: a power of two, of the threads that stand side by side over vectors of channels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kMostThreads) scale_backward_kernel(ScaleArgs args, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  __shared__ S shared[kWidth][kMostThreads];
  if (is_empty(args.branches)) return;
  const int entry = blockIdx.y, values = args.branches.values, channels = args.branches.channels;
  const int vectors = channels / kWidth, pixels = values / channels, rows = kMostThreads / across;
  const int tx = threadIdx.x % across, ty = threadIdx.x / across;
  const T* const x = sample_of<const T>(args.branches.a, entry, values);
  const T* const grads = sample_of<const T>(args.branches.out, entry, values);
  T* const grad_x = sample_of<T>(args.grad_x, entry, values);
  const W* const factors = factors_of<const W>(args.scale, channels);
  W* const grad_factors = factors_of<W>(args.grad_scale, channels);
  for (int first = 0; first < vectors; first += across) {
    const int vector = first + tx;
    S sums[kWidth] = {};
    if (vector < vectors)
      for (int pixel = ty; pixel < pixels; pixel += rows) {
        const int place = pixel * channels + vector * kWidth;
        W a[kWidth], grad[kWidth];
        load<T, kWidth>(a, x + place);
        load<T, kWidth>(grad, grads + place);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          sums[j] += static_cast<S>(grad[j]) * static_cast<S>(a[j]);
          grad[j] *= factors[vector * kWidth + j];
        }
        store<T, kWidth>(grad_x + place, grad);
      }
    __syncthreads();  // the last round's sums are read
#pragma unroll
    for (int j = 0; j < kWidth; ++j) shared[j][threadIdx.x] = sums[j];
    for (int half = rows / 2; half > 0; half /= 2) {
      __syncthreads();
      if (ty < half)
#pragma unroll
        for (int j = 0; j < kWidth; ++j) shared[j][threadIdx.x] += shared[j][threadIdx.x + half * across];
    }
    if (ty == 0 && vector < vectors)
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        grad_factors[vector * kWidth + j] = static_cast<W>(shared[j][threadIdx.x]);
  }
}

template <Formula kFormula>
cudaError_t launch_formula(const BranchArgs& args, cudaStream_t stream) {
  return for_width(args.type, args.values, [&](auto value, auto width) {
    formula_kernel<decltype(value), width, kFormula>
        <<<dim3(args.batch, args.entries), threads_for(args.values / width), 0, stream>>>(args);
    return cudaGetLastError();
  });
}

}  // namespace

cudaError_t launch_formula(Formula formula, const BranchArgs& args, cudaStream_t stream) {
  switch (formula) {
    case Formula::kSum:
      return launch_formula<Formula::kSum>(args, stream);
    case Formula::kRelu:
      return launch_formula<Formula::kRelu>(args, stream);
    case Formula::kSigmoid:
      return launch_formula<Formula::kSigmoid>(args, stream);
    case Formula::kTanh:
      return launch_formula<Formula::kTanh>(args, stream);
    case Formula::kWhereOutput:
      return launch_formula<Formula::kWhereOutput>(args, stream);
    case Formula::kSigmoidSlope:
      return launch_formula<Formula::kSigmoidSlope>(args, stream);
    case Formula::kTanhSlope:
      return launch_formula<Formula::kTanhSlope>(args, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t launch_mix_forward(const MixArgs& args, cudaStream_t stream) {
  const BranchArgs& sizes = args.branches;
  return for_width(sizes.type, sizes.values, [&](auto value, auto width) {
    mix_kernel<decltype(value), width>
        <<<dim3(sizes.batch, sizes.entries), threads_for(sizes.values / width), 0, stream>>>(args);
    return cudaGetLastError();
  });
}

cudaError_t launch_mix_backward(const MixArgs& args, cudaStream_t stream) {
  const BranchArgs& sizes = args.branches;
  return for_width(sizes.type, sizes.values, [&](auto value, auto width) {
    using T = decltype(value);
    mix_backward_kernel<T, width>
        <<<dim3(sizes.batch, sizes.entries), threads_for(sizes.values / width), 0, stream>>>(args);
    if (const cudaError_t error = cudaGetLastError()) return error;
    add_samples_kernel<T><<<dim3(1, sizes.entries), threads_for(sizes.batch), 0, stream>>>(args);
    return cudaGetLastError();
  });
}

// A vector is of one pixel: channels have to be a whole number of them.
cudaError_t launch_scale_forward(const ScaleArgs& args, cudaStream_t stream) {
  const BranchArgs& sizes = args.branches;
  return for_width(sizes.type, sizes.channels, [&](auto value, auto width) {
    scale_kernel<decltype(value), width>
        <<<dim3(sizes.batch, sizes.entries), threads_for(sizes.values / width), 0, stream>>>(args);
    return cudaGetLastError();
  });
}

cudaError_t launch_scale_backward(const ScaleArgs& args, cudaStream_t stream) {
  const BranchArgs& sizes = args.branches;
  return for_width(sizes.type, sizes.channels, [&](auto value, auto width) {
    int across = 1;
    while (across * 2 <= std::min<int>(sizes.channels / width, kMostThreads)) across *= 2;
    scale_backward_kernel<decltype(value), width>
        <<<dim3(sizes.batch, sizes.entries), kMostThreads, 0, stream>>>(args, across);
    return cudaGetLastError();
  });
}

}  // namespace espalier::grow
