// Group norm of all lanes. A block does one sample: its values are read once for the statistics (twice where
// the first pass lost digits), and again, from cache, to be normalised. Backward leaves every sample's share
// of the parameters' gradients; a second kernel adds them up in the order of the samples.
//
// Thread mapping: threads across vectors of channels (16 bytes where channels allow it, else one value) and
// over pixels. A vector lies within one group, or has values of several (kSeveral). blockIdx: sample, lane.
// Deterministic.
#include <algorithm>

#include "espalier/lanes/norm/kernel.h"
#include "espalier/lanes/row_sums.cuh"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;
constexpr int kMostVectors = 2048;  // covering the channels: shared memory has two sums for each
constexpr size_t kBytesWithoutAsking = 48 << 10, kMostBytes = 99 << 10;  // of shared memory, on any card
// In squares of the distance from which sums are taken to the mean: below it a variance has lost two of the
// seven digits of fp32.
constexpr float kLeastVariance = 0.01f;

// What a thread does: a share of a sample's pixels, for the vectors of channels tx, tx + across, ...
struct GroupThread {
  int lane, sample, across, rows, tx, ty;

  __device__ explicit GroupThread(int across_)
      : lane(blockIdx.y),
        sample(blockIdx.x),
        across(across_),
        rows(kThreads / across_),
        tx(threadIdx.x % across_),
        ty(threadIdx.x / across_) {}
};

// x, or relu(x): a NaN passes.
template <class T, int kWidth>
__device__ inline void load_input(const NormArgs& args, wide_t<T> (&values)[kWidth], const T* from) {
  load<T, kWidth>(values, from);
  if (!args.rectified) return;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) values[j] = values[j] <= 0 ? wide_t<T>(0) : values[j];
}

// What a vector of channels is normalised with.
template <class W, int kWidth, bool kSeveral>
struct Coefficients {
  static constexpr int kGroups = kSeveral ? kWidth : 1;
  int group[kGroups];
  W mean[kGroups], scale[kGroups], weight[kWidth], bias[kWidth];

  template <class From>
  __device__ Coefficients(const NormArgs& args, int lane, int vector, int depth, const From* means,
                          const From* scales) {
    const W* const weights = static_cast<const W*>(args.weight.data) + lane * args.weight.lane_stride;
    const W* const biases = static_cast<const W*>(args.bias.data) + lane * args.bias.lane_stride;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      group[j] = (vector * kWidth + j) / depth;
      mean[j] = static_cast<W>(means[group[j]]);
      scale[j] = static_cast<W>(scales[group[j]]);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      weight[j] = weights[vector * kWidth + j];
      bias[j] = biases[vector * kWidth + j];
    }
  }
  __device__ W normal(W value, int j) const {
    const int i = kSeveral ? j : 0;
    return (value - mean[i]) * scale[i];
  }
};

// A group's sums, of those of its vectors or channels in order.
template <int kWidth, bool kSeveral, class S>
__device__ __forceinline__ void sum_group(const S* vector_sums, int group, int depth, S& sum, S& squares) {
  if (kSeveral) {
    for (int channel = group * depth; channel < (group + 1) * depth; ++channel) {
      const S* const from = vector_sums + channel / kWidth * 2 * kWidth + channel % kWidth;
      sum += from[0];
      squares += from[kWidth];
    }
  } else {
    for (int vector = group * depth / kWidth; vector < (group + 1) * depth / kWidth; ++vector) {
      sum += vector_sums[vector * 2];
      squares += vector_sums[vector * 2 + 1];
    }
  }
}

// A thread's share of the sums of a vector's values, and of their squares, about `shift`.
template <class T, int kWidth, bool kSeveral, class S, int kSums>
__device__ __forceinline__ void sum_vector(const NormArgs& args, const GroupThread& at, int pixels,
                                           int vector, const T* x, const S (&shift)[kSums],
                                           S (&sums)[2 * kSums]) {
#pragma unroll 4
  for (int pixel = at.ty; pixel < pixels; pixel += at.rows) {
    wide_t<T> values[kWidth];
    load_input<T, kWidth>(args, values, x + static_cast<int64_t>(pixel) * args.channels + vector * kWidth);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const int i = kSeveral ? j : 0;
      const S centred = values[j] - shift[i];
      sums[i] += centred;
      sums[kSums + i] += centred * centred;
    }
  }
}

// The groups' means, which were the shifts of the sums, and scales. True where a variance that this thread
// has met lost digits.
template <class W, int kWidth, bool kSeveral, class S>
__device__ __forceinline__ bool find_statistics(const NormArgs& args, int depth, S count, int64_t statistics,
                                                const S* vector_sums, S* means, S* scales) {
  bool has_lost = false;
  for (int group = threadIdx.x; group < args.groups; group += kThreads) {
    S sum = 0, squares = 0;
    sum_group<kWidth, kSeveral>(vector_sums, group, depth, sum, squares);
    const S share = sum / count;
    const S variance = (squares - sum * share) / count;
    has_lost |= variance < share * share * kLeastVariance;
    means[group] += share;
    scales[group] = S(1) / sqrt((variance < 0 ? S(0) : variance) + static_cast<S>(args.eps));  // a NaN stays
    static_cast<W*>(args.mean)[statistics + group] = static_cast<W>(means[group]);
    static_cast<W*>(args.scale)[statistics + group] = static_cast<W>(scales[group]);
  }
  return has_lost;
}

template <class T, int kWidth, bool kSeveral>
__global__ void __launch_bounds__(kThreads, 4) forward_kernel(NormArgs args, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  constexpr int kSums = kSeveral ? kWidth : 1;  // that a vector has, and as many of squares
  extern __shared__ __align__(16) uint8_t raw[];
  S* const vector_sums = reinterpret_cast<S*>(raw);  // [vectors,2,kSums], then [groups] means and scales
  __shared__ S scratch[2 * kSums][kThreads];
  const GroupThread at(across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  const int pixels = args.height * args.width, vectors = args.channels / kWidth;
  const int depth = args.channels / args.groups;
  const int64_t offset = static_cast<int64_t>(at.sample) * pixels * args.channels;
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + offset;
  T* const out = static_cast<T*>(args.out.data) + at.lane * args.out.lane_stride + offset;
  const T* const residual = args.residual.data == nullptr ? nullptr
                                                          : static_cast<const T*>(args.residual.data) +
                                                                at.lane * args.residual.lane_stride + offset;
  const bool there = args.mask == nullptr || args.mask[at.lane * args.mask_stride + at.sample];
  S* const means = vector_sums + vectors * 2 * kSums;
  S* const scales = means + args.groups;
  const S count = static_cast<S>(pixels) * depth;
  // Sums are taken about a group's first value, so that squares lose nothing to a large mean. Where that
  // value lies far from all others they do: then once more about the mean.
  for (int group = threadIdx.x; group < args.groups; group += kThreads) {
    W first[1] = {};
    if (there) load_input<T, 1>(args, first, x + group * depth);
    means[group] = static_cast<S>(first[0]);
  }
  const int64_t statistics = (static_cast<int64_t>(at.lane) * args.batch + at.sample) * args.groups;
  for (int pass = 0; pass < 2; ++pass) {
    __syncthreads();
    for (int vector = at.tx; vector < (vectors + across - 1) / across * across; vector += across) {
      S sums[2 * kSums] = {};
      if (vector < vectors && there) {
        S shift[kSums];
#pragma unroll
        for (int j = 0; j < kSums; ++j) shift[j] = means[(vector * kWidth + j) / depth];
        sum_vector<T, kWidth, kSeveral>(args, at, pixels, vector, x, shift, sums);
      }
      add_rows<kThreads>(at.across, sums, scratch);
      if (at.ty == 0 && vector < vectors)
#pragma unroll
        for (int i = 0; i < 2 * kSums; ++i) vector_sums[vector * 2 * kSums + i] = sums[i];
    }
    __syncthreads();
    const bool has_lost =
        find_statistics<W, kWidth, kSeveral>(args, depth, count, statistics, vector_sums, means, scales);
    if (__syncthreads_count(has_lost) == 0) break;
  }
  for (int vector = at.tx; vector < vectors; vector += across) {
    const Coefficients<W, kWidth, kSeveral> own(args, at.lane, vector, depth, means, scales);
#pragma unroll 4
    for (int pixel = at.ty; pixel < pixels; pixel += at.rows) {
      const int64_t place = static_cast<int64_t>(pixel) * args.channels + vector * kWidth;
      W values[kWidth];
      load_input<T, kWidth>(args, values, x + place);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const W y = own.normal(values[j], j) * own.weight[j] + own.bias[j];
        values[j] = !there ? W(0) : args.relu && y < 0 ? W(0) : y;
      }
      if (residual != nullptr) {
        W added[kWidth];
        load<T, kWidth>(added, residual + place);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) values[j] += added[j];
      }
      store<T, kWidth>(out + place, values);
    }
  }
}

// The gradient past the ReLU, which is found again from z, the normalised value.
template <class T, class Own>
__device__ __forceinline__ wide_t<T> past_relu(const NormArgs& args, const Own& own, wide_t<T> grad,
                                               wide_t<T> z, int j) {
  const wide_t<T> y = widen<T>(narrow<T>(z * own.weight[j] + own.bias[j]));
  return args.relu && y <= 0 ? wide_t<T>(0) : grad;
}

// A thread's share of a vector's sums of g z, and of g.
template <class T, int kWidth, class Own, class S>
__device__ __forceinline__ void sum_gradients(const NormArgs& args, const GroupThread& at, const Own& own,
                                              int pixels, int vector, const T* x, const T* grads,
                                              S (&sums)[2 * kWidth]) {
#pragma unroll 2
  for (int pixel = at.ty; pixel < pixels; pixel += at.rows) {
    const int64_t place = static_cast<int64_t>(pixel) * args.channels + vector * kWidth;
    wide_t<T> values[kWidth], grad[kWidth];
    load_input<T, kWidth>(args, values, x + place);
    load<T, kWidth>(grad, grads + place);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const wide_t<T> z = own.normal(values[j], j), g = past_relu<T>(args, own, grad[j], z, j);
      sums[j] += static_cast<S>(g) * z;
      sums[kWidth + j] += g;
    }
  }
}

// Leaves a sample's sums for the gradients of the parameters. partial: [2][C].
template <class S>
__device__ __forceinline__ void store_partial(int channels, const S* products, const S* sums, S* partial) {
  for (int channel = threadIdx.x; channel < channels; channel += kThreads) {
    partial[channel] = products[channel];
    partial[channels + channel] = sums[channel];
  }
}

// The groups' means of g w, and of g w z.
template <class W, class S>
__device__ __forceinline__ void average_groups(int groups, int depth, S count, const W* weight,
                                               const S* products, const S* sums, S* first, S* second) {
  for (int group = threadIdx.x; group < groups; group += kThreads) {
    S product = 0, sum = 0;
    for (int channel = group * depth; channel < (group + 1) * depth; ++channel) {
      product += products[channel] * weight[channel];
      sum += sums[channel] * weight[channel];
    }
    first[group] = sum / count;
    second[group] = product / count;
  }
}

// partial: [L][B][2][C]: of a sample, sums of g z and of g, every channel.
template <class T, int kWidth, bool kSeveral>
__global__ void __launch_bounds__(kThreads) backward_kernel(NormArgs args, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  extern __shared__ __align__(16) uint8_t raw[];
  S* const products = reinterpret_cast<S*>(raw);  // [C] sums of g z
  S* const sums = products + args.channels;       // [C] sums of g
  S* const first = sums + args.channels;          // [G] mean of g w
  S* const second = first + args.groups;          // [G] mean of g w z
  __shared__ S scratch[2 * kWidth][kThreads];
  const GroupThread at(across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  const int pixels = args.height * args.width, vectors = args.channels / kWidth;
  const int depth = args.channels / args.groups;
  const int64_t offset = static_cast<int64_t>(at.sample) * pixels * args.channels;
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + offset;
  const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + offset;
  const bool there = args.mask == nullptr || args.mask[at.lane * args.mask_stride + at.sample];
  const int64_t statistics = (static_cast<int64_t>(at.lane) * args.batch + at.sample) * args.groups;
  const W* const means = static_cast<const W*>(args.mean) + statistics;
  const W* const scales = static_cast<const W*>(args.scale) + statistics;
  const W* const weight = static_cast<const W*>(args.weight.data) + at.lane * args.weight.lane_stride;
  using Own = Coefficients<W, kWidth, kSeveral>;

  for (int vector = at.tx; vector < (vectors + across - 1) / across * across; vector += across) {
    S own_sums[2 * kWidth] = {};
    if (vector < vectors && there) {
      const Own own(args, at.lane, vector, depth, means, scales);
      sum_gradients<T, kWidth>(args, at, own, pixels, vector, x, grads, own_sums);
    }
    add_rows<kThreads>(at.across, own_sums, scratch);
    if (at.ty == 0 && vector < vectors)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        products[vector * kWidth + j] = own_sums[j];
        sums[vector * kWidth + j] = own_sums[kWidth + j];
      }
  }
  __syncthreads();
  S* const partial = static_cast<S*>(args.partial) +
                     (static_cast<int64_t>(at.lane) * args.batch + at.sample) * 2 * args.channels;
  store_partial(args.channels, products, sums, partial);
  average_groups(args.groups, depth, static_cast<S>(pixels) * depth, weight, products, sums, first, second);
  __syncthreads();
  if (args.grad_x.data == nullptr) return;
  T* const grad_x = static_cast<T*>(args.grad_x.data) + at.lane * args.grad_x.lane_stride + offset;
  for (int vector = at.tx; vector < vectors; vector += across) {
    const Own own(args, at.lane, vector, depth, means, scales);
#pragma unroll 2
    for (int pixel = at.ty; pixel < pixels; pixel += at.rows) {
      const int64_t place = static_cast<int64_t>(pixel) * args.channels + vector * kWidth;
      W values[kWidth], grad[kWidth];
      load_input<T, kWidth>(args, values, x + place);
      load<T, kWidth>(grad, grads + place);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const int g_of = kSeveral ? j : 0;
        const W z = own.normal(values[j], j), g = past_relu<T>(args, own, grad[j], z, j);
        const bool passes = there && !(args.rectified && values[j] <= 0);
        values[j] = passes ? own.scale[g_of] * (g * own.weight[j] - static_cast<W>(first[own.group[g_of]]) -
                                                z * static_cast<W>(second[own.group[g_of]]))
                           : W(0);
      }
      store<T, kWidth>(grad_x + place, values);
    }
  }
}

// One block 32 channels of a lane: 8 threads a channel share the samples out.
template <class W, class S>
__global__ void __launch_bounds__(kThreads) parameters_kernel(NormArgs args) {
  __shared__ S shared[2][kThreads];
  const int lane = blockIdx.y, channel = blockIdx.x * 32 + threadIdx.x % 32, sharer = threadIdx.x / 32;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  S product = 0, sum = 0;
  if (channel < args.channels)
#pragma unroll 8
    for (int sample = sharer; sample < args.batch; sample += kThreads / 32) {
      const S* const from = static_cast<const S*>(args.partial) +
                            (static_cast<int64_t>(lane) * args.batch + sample) * 2 * args.channels + channel;
      product += from[0];
      sum += from[args.channels];
    }
  shared[0][threadIdx.x] = product;
  shared[1][threadIdx.x] = sum;
  __syncthreads();
  if (sharer != 0 || channel >= args.channels) return;
  for (int other = 1; other < kThreads / 32; ++other) {
    product += shared[0][threadIdx.x + other * 32];
    sum += shared[1][threadIdx.x + other * 32];
  }
  (static_cast<W*>(args.grad_weight.data) + lane * args.grad_weight.lane_stride)[channel] =
      static_cast<W>(product);
  (static_cast<W*>(args.grad_bias.data) + lane * args.grad_bias.lane_stride)[channel] = static_cast<W>(sum);
}

// fixed_bytes: of the kernel's own shared memory. A kernel is always allowed the same, so that a launch that
// was captured keeps what it had.
template <class Kernel>
cudaError_t allow_bytes(Kernel kernel, size_t bytes, size_t fixed_bytes) {
  if (bytes + fixed_bytes <= kBytesWithoutAsking) return cudaSuccess;
  if (bytes + fixed_bytes > kMostBytes) return cudaErrorInvalidValue;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kMostBytes - fixed_bytes));
}

template <class T, int kWidth, bool kSeveral>
cudaError_t launch(const NormArgs& args, bool backward, cudaStream_t stream) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const int vectors = args.channels / kWidth;
  if (vectors > kMostVectors) return cudaErrorInvalidValue;
  int across = 1;
  while (across * 2 <= std::min(vectors, kThreads)) across *= 2;
  const dim3 grid(args.batch, args.lanes);
  if (!backward) {
    const auto kernel = forward_kernel<T, kWidth, kSeveral>;
    constexpr int kSums = kSeveral ? kWidth : 1;
    const size_t bytes = (vectors * 2 * kSums + 2 * args.groups) * sizeof(S);
    if (const cudaError_t error = allow_bytes(kernel, bytes, 2 * kSums * kThreads * sizeof(S))) return error;
    kernel<<<grid, kThreads, bytes, stream>>>(args, across);
    return cudaGetLastError();
  }
  const auto kernel = backward_kernel<T, kWidth, kSeveral>;
  const size_t bytes = (2 * args.channels + 2 * args.groups) * sizeof(S);
  if (const cudaError_t error = allow_bytes(kernel, bytes, 2 * kWidth * kThreads * sizeof(S))) return error;
  kernel<<<grid, kThreads, bytes, stream>>>(args, across);
  parameters_kernel<W, S><<<dim3((args.channels + 31) / 32, args.lanes), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch(const NormArgs& args, bool backward, cudaStream_t stream) {
  constexpr int kVector = 16 / sizeof(T);
  constexpr int kMostWithSeveral = 1024;  // channels, each of which has its own sums in shared memory
  if (args.channels / args.groups % kVector == 0) return launch<T, kVector, false>(args, backward, stream);
  if (args.channels % kVector == 0 && args.channels <= kMostWithSeveral)
    return launch<T, kVector, true>(args, backward, stream);
  return launch<T, 1, false>(args, backward, stream);
}

cudaError_t launch(const NormArgs& args, bool backward, cudaStream_t stream) {
  return for_type(args.type, [&](auto value) { return launch<decltype(value)>(args, backward, stream); });
}

}  // namespace

int64_t group_norm_partials(const NormArgs& args) {
  return static_cast<int64_t>(args.lanes) * args.batch * 2 * args.channels;
}

cudaError_t launch_group_norm_forward(const NormArgs& args, cudaStream_t stream) {
  return launch(args, false, stream);
}

cudaError_t launch_group_norm_backward(const NormArgs& args, cudaStream_t stream) {
  return launch(args, true, stream);
}

}  // namespace espalier::lanes
