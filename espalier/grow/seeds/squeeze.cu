// blockIdx: sample, entry; forward and the gradients of a sample. Threads across vectors of channels (16
// bytes where channels allow it) and over pixels for the mean; then one thread per feature. The weights'
// gradients: kRows threads per weight, each a share of the samples.
#include <algorithm>

#include "espalier/grow/seeds/squeeze_kernel.h"
#include "espalier/lanes/row_sums.cuh"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::grow {
namespace {

using lanes::load;
using lanes::narrow;
using lanes::store;
using lanes::sum_t;
using lanes::wide_t;

constexpr int kThreads = 256;
constexpr int kRows = 32;
constexpr int kWeights = kThreads / kRows;

template <class W>
__device__ inline W* row_of(const lanes::Stack& stack, int entry, int64_t sample, int features) {
  return static_cast<W*>(stack.data) + entry * stack.lane_stride + sample * features;
}

// The mean of every channel over a sample's pixels, into shared memory. across: threads side by side over
// vectors, a power of two.
template <class T, int kWidth>
__device__ void mean_of_channels(const SqueezeArgs& args, const T* x, int across, wide_t<T>* pooled) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  __shared__ S shared[kWidth][kThreads];
  const int vectors = args.channels / kWidth, rows = kThreads / across;
  const int tx = threadIdx.x % across, ty = threadIdx.x / across;
  for (int first = 0; first < vectors; first += across) {
    const int vector = first + tx;
    S sums[kWidth] = {};
    if (vector < vectors)
#pragma unroll 4
      for (int pixel = ty; pixel < args.pixels; pixel += rows) {
        W values[kWidth];
        load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels + vector * kWidth);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums[j] += values[j];
      }
    lanes::add_rows<kThreads>(across, sums, shared);
    if (ty == 0 && vector < vectors)
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        pooled[vector * kWidth + j] = static_cast<W>(sums[j] / static_cast<S>(args.pixels));
  }
  __syncthreads();
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) forward_kernel(SqueezeArgs args, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const int entry = blockIdx.y;
  if (args.active != nullptr && args.active[entry] < 0) return;
  extern __shared__ __align__(16) uint8_t raw[];
  W* const pooled = reinterpret_cast<W*>(raw);  // [C]
  W* const middle = pooled + args.channels;     // [M]
  const int64_t sample = blockIdx.x;
  mean_of_channels<T, kWidth>(
      args,
      static_cast<const T*>(args.x.data) + entry * args.x.lane_stride + sample * args.pixels * args.channels,
      across, pooled);
  for (int c = threadIdx.x; c < args.channels; c += kThreads)
    row_of<W>(args.pooled, entry, sample, args.channels)[c] = pooled[c];
  for (int m = threadIdx.x; m < args.hidden; m += kThreads) {
    const W* const weight = row_of<const W>(args.first_weight, entry, m, args.channels);
    S sum = row_of<const W>(args.first_bias, entry, 0, 0)[m];
    for (int c = 0; c < args.channels; ++c) sum += static_cast<S>(weight[c]) * pooled[c];
    const W value = sum <= S(0) ? W(0) : static_cast<W>(sum);  // a NaN passes
    middle[m] = value;
    row_of<W>(args.middle, entry, sample, args.hidden)[m] = value;
  }
  __syncthreads();
  for (int o = threadIdx.x; o < args.outputs; o += kThreads) {
    const W* const weight = row_of<const W>(args.second_weight, entry, o, args.hidden);
    S sum = row_of<const W>(args.second_bias, entry, 0, 0)[o];
    for (int m = 0; m < args.hidden; ++m) sum += static_cast<S>(weight[m]) * middle[m];
    const S share = S(1) / (S(1) + exp(-sum));
    row_of<S>(args.shares, entry, sample, args.outputs)[o] = share;
    row_of<W>(args.out, entry, sample, args.outputs)[o] = static_cast<W>(static_cast<S>(args.factor) * share);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) backward_kernel(SqueezeArgs args) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const int entry = blockIdx.y;
  if (args.active != nullptr && args.active[entry] < 0) return;
  extern __shared__ __align__(16) uint8_t raw[];
  S* const second = reinterpret_cast<S*>(raw);                  // [O]
  S* const first = second + args.outputs;                       // [M]
  W* const slopes = reinterpret_cast<W*>(first + args.hidden);  // [C]
  const int64_t sample = blockIdx.x;
  for (int o = threadIdx.x; o < args.outputs; o += kThreads) {
    const S share = row_of<const S>(args.shares, entry, sample, args.outputs)[o];
    const S out = static_cast<S>(args.factor) * share;
    const S grad =
        static_cast<S>(row_of<const W>(args.grad_out, entry, sample, args.outputs)[o]) * out * (S(1) - share);
    second[o] = grad;
    row_of<S>(args.grad_second, entry, sample, args.outputs)[o] = grad;
  }
  __syncthreads();
  for (int m = threadIdx.x; m < args.hidden; m += kThreads) {
    S sum = 0;
    for (int o = 0; o < args.outputs; ++o)
      sum += static_cast<S>(row_of<const W>(args.second_weight, entry, o, args.hidden)[m]) * second[o];
    const S grad = row_of<const W>(args.middle, entry, sample, args.hidden)[m] <= W(0) ? S(0) : sum;
    first[m] = grad;
    row_of<S>(args.grad_middle, entry, sample, args.hidden)[m] = grad;
  }
  __syncthreads();
  for (int c = threadIdx.x; c < args.channels; c += kThreads) {
    S sum = 0;
    for (int m = 0; m < args.hidden; ++m)
      sum += static_cast<S>(row_of<const W>(args.first_weight, entry, m, args.channels)[c]) * first[m];
    slopes[c] = static_cast<W>(sum / static_cast<S>(args.pixels));
  }
  __syncthreads();
  if (args.x.data == nullptr) return;
  T* const grad_x =
      static_cast<T*>(args.x.data) + entry * args.x.lane_stride + sample * args.pixels * args.channels;
  const int vectors = args.channels / kWidth;
  for (int i = threadIdx.x; i < args.pixels * vectors; i += kThreads) {
    W values[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = slopes[i % vectors * kWidth + j];
    store<T, kWidth>(grad_x + static_cast<int64_t>(i) * kWidth, values);
  }
}

// One weight: grad [B,A] and value [B,I] of an entry; weight (a, i), or the bias a where value is null.
template <class W, class S>
struct WeightSum {
  const S* grad;
  const W* value;
  int grads, values;
  W* to;
};

// Which of the four lists a weight is in: [M,C], [M], [O,M], [O].
template <class W, class S>
__device__ WeightSum<W, S> weight_at(const SqueezeArgs& args, int entry, int index) {
  const S* const middle_grads = row_of<const S>(args.grad_middle, entry, 0, 0);
  const S* const second_grads = row_of<const S>(args.grad_second, entry, 0, 0);
  const int of_first = args.hidden * args.channels, of_second = args.outputs * args.hidden;
  if (index < of_first)
    return {middle_grads + index / args.channels,
            row_of<const W>(args.pooled, entry, 0, 0) + index % args.channels, args.hidden, args.channels,
            row_of<W>(args.grad_first_weight, entry, 0, 0) + index};
  index -= of_first;
  if (index < args.hidden)
    return {middle_grads + index, nullptr, args.hidden, 0,
            row_of<W>(args.grad_first_bias, entry, 0, 0) + index};
  index -= args.hidden;
  if (index < of_second)
    return {second_grads + index / args.hidden,
            row_of<const W>(args.middle, entry, 0, 0) + index % args.hidden, args.outputs, args.hidden,
            row_of<W>(args.grad_second_weight, entry, 0, 0) + index};
  index -= of_second;
  return {second_grads + index, nullptr, args.outputs, 0,
          row_of<W>(args.grad_second_bias, entry, 0, 0) + index};
}

template <class T>
__global__ void __launch_bounds__(kThreads) weights_kernel(SqueezeArgs args, int num_weights) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  __shared__ S sums[kRows][kWeights];
  const int entry = blockIdx.y, column = threadIdx.x % kWeights, row = threadIdx.x / kWeights;
  if (args.active != nullptr && args.active[entry] < 0) return;
  const int index = blockIdx.x * kWeights + column;
  S sum = 0;
  WeightSum<W, S> of{};
  if (index < num_weights) {
    of = weight_at<W, S>(args, entry, index);
#pragma unroll 4
    for (int64_t b = row; b < args.batch; b += kRows)
      sum += of.grad[b * of.grads] * (of.value == nullptr ? S(1) : static_cast<S>(of.value[b * of.values]));
  }
  sums[row][column] = sum;
  __syncthreads();
  if (row > 0 || index >= num_weights) return;
#pragma unroll
  for (int other = 1; other < kRows; ++other) sum += sums[other][column];
  *of.to = static_cast<W>(sum);
}

int across_of(int vectors) {
  int across = 1;
  while (across < kThreads && across * 2 <= vectors) across *= 2;
  return across;
}

// Whether a thread may take 16 bytes at once.
template <class T>
bool takes_vectors(const SqueezeArgs& args) {
  constexpr int kWidth = 16 / sizeof(T);
  return args.channels % kWidth == 0 && reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0 &&
         args.x.lane_stride * static_cast<int64_t>(sizeof(T)) % 16 == 0;
}

}  // namespace

cudaError_t launch_squeeze_forward(const SqueezeArgs& args, cudaStream_t stream) {
  return lanes::for_type(args.type, [&](auto value) {
    using T = decltype(value);
    constexpr int kWidth = 16 / sizeof(T);
    const dim3 grid(args.batch, args.entries);
    const size_t bytes = static_cast<size_t>(args.channels + args.hidden) * sizeof(wide_t<T>);
    if (takes_vectors<T>(args))
      forward_kernel<T, kWidth><<<grid, kThreads, bytes, stream>>>(args, across_of(args.channels / kWidth));
    else
      forward_kernel<T, 1><<<grid, kThreads, bytes, stream>>>(args, across_of(args.channels));
    return cudaGetLastError();
  });
}

cudaError_t launch_squeeze_backward(const SqueezeArgs& args, cudaStream_t stream) {
  return lanes::for_type(args.type, [&](auto value) {
    using T = decltype(value);
    constexpr int kWidth = 16 / sizeof(T);
    const dim3 grid(args.batch, args.entries);
    const size_t bytes = static_cast<size_t>(args.hidden + args.outputs) * sizeof(sum_t<T>) +
                         static_cast<size_t>(args.channels) * sizeof(wide_t<T>);
    if (takes_vectors<T>(args))
      backward_kernel<T, kWidth><<<grid, kThreads, bytes, stream>>>(args);
    else
      backward_kernel<T, 1><<<grid, kThreads, bytes, stream>>>(args);
    if (const cudaError_t error = cudaGetLastError()) return error;
    const int num_weights = args.hidden * (args.channels + 1) + args.outputs * (args.hidden + 1);
    weights_kernel<T><<<dim3((num_weights + kWeights - 1) / kWeights, args.entries), kThreads, 0, stream>>>(
        args, num_weights);
    return cudaGetLastError();
  });
}

}  // namespace espalier::grow
