// Batch norm of all lanes, with its residual, its ReLU and its max pool.
//
// Forward: (1) every block takes a part of a lane's pixels and leaves mean and squared deviations of each
// channel; (2) every block adds the parts of its lane up, in order, and writes its share of the output. Where
// parts are many, a small kernel between makes one of them.
// Backward: (1) a part's sums of g and g z (g the gradient past pool and ReLU, z the normalised input); (2)
// the parts' sum and the input's gradient. A pooling window keeps the value that won it, which is all that
// the sums read; which of the four it was, and the ReLU, are found again from the input. Past a residual the
// ReLU is found again from the output. The overlapping windows of a 3x3 pool keep their winners' places too.
//
// Thread mapping: a thread owns a vector of channels (16 bytes, or one value) and walks over pixels, so its
// coefficients stay in registers. blockIdx: part of the pixels, lane, slice of the channels.
// A single value per channel has no variance: the running statistics stand in for the batch's. The count of
// values is the same for all blocks of a lane, so they decide alike.
// Deterministic: the number of parts depends on the lane's shape alone. Backward the same bits come whether
// the 2x2 pool is done here or by a kernel of its own, which depends on what other lanes have grown in
// between.
#pragma once

#include <algorithm>

#include "espalier/core/random/divisor.h"
#include "espalier/lanes/norm/kernel.h"
#include "espalier/lanes/pair.cuh"

namespace espalier::lanes::batch_norm {

constexpr int kThreads = 256;
constexpr int kValuesAPart = 65536;  // 128 KiB of bf16: long enough to pay for adding the parts up
constexpr int kMostParts = 256;
constexpr int kFewParts = 8;  // that every block adds up by itself; of more, a kernel between makes one
// In a second pass, all of them at once on an H200: four on each multiprocessor, or three where registers
// allow no more. A block's beginning, with the coefficients of its channels, costs as much as some pixels.
constexpr int kMostBlocks = 4 * 132, kMostGradientBlocks = 3 * 132;

inline int num_parts(const NormArgs& args) {
  const int64_t values = static_cast<int64_t>(args.batch) * args.height * args.width * args.channels;
  return static_cast<int>(std::clamp<int64_t>(values / kValuesAPart, 1, kMostParts));
}

// Parts as a first pass made them, and how many are left to add up: those from the first on.
struct Parts {
  int made, left;
};

// How a block's threads lie over channels and pixels.
struct Slice {
  int across;  // threads across channels: a power of two
  int slices;  // blocks across channels
};

inline Slice slice_of(int vectors) {
  Slice slice{1, 0};
  while (slice.across * 2 <= std::min(vectors, 32)) slice.across *= 2;
  slice.slices = (vectors + slice.across - 1) / slice.across;
  return slice;
}

// What a thread has to do: a vector of channels, in its share of a lane's pixels.
template <int kWidth>
struct ChannelThread {
  int lane, part, across, rows, tx, ty, channel;
  bool valid;  // has channels

  __device__ ChannelThread(const NormArgs& args, int across_)
      : lane(blockIdx.y),
        part(blockIdx.x),
        across(across_),
        rows(kThreads / across_),
        tx(threadIdx.x % across_),
        ty(threadIdx.x / across_),
        channel((blockIdx.z * across_ + threadIdx.x % across_) * kWidth),
        valid(channel < args.channels) {}
};

// A part's share of `total` pixels.
struct Range {
  int begin, end;
  __device__ Range(int total, int part, int parts) {
    const int each = (total + parts - 1) / parts;
    begin = min(total, part * each);
    end = min(total, begin + each);
  }
};

// What a block needs of every channel of its slice, in shared memory.
template <class W>
struct Coefficients {
  W mean[kThreads], scale[kThreads], weight[kThreads], bias[kThreads];
  W first[kThreads], second[kThreads];  // backward: the means of g and of g z times scale
};

// Adds the parts of [parts][kinds][C] up for the slice's channels: `combine(channel, part values...)` is the
// caller's. Threads share the parts of a channel out, then the first adds the others' in order.
template <class W, int kSums, class Gather>
__device__ void add_parts(int channels_here, int parts, W (*shared)[kThreads], W (&total)[kSums],
                          Gather&& gather) {
  const int sharers = kThreads / channels_here;
  const int channel = threadIdx.x % channels_here, sharer = threadIdx.x / channels_here;
  W sums[kSums] = {};
  if (sharer < sharers) {
#pragma unroll 8
    for (int part = sharer; part < parts; part += sharers) gather(channel, part, sums);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSums; ++i) shared[i][threadIdx.x] = sums[i];
  __syncthreads();
  if (sharer == 0)
    for (int i = 0; i < kSums; ++i) {
      W all = 0;
      for (int other = 0; other < sharers; ++other) all += shared[i][other * channels_here + channel];
      total[i] = all;
    }
}

// A thread's own coefficients. An output is weight (x - mean) + bias; of 16-bit types, whose values have few
// digits beside their mean's, it is weight x + offset, one instruction less.
template <class T, int kWidth>
struct Own {
  using W = wide_t<T>;
  static constexpr bool kIsNarrow = sizeof(T) == 2;
  W mean[kWidth], weight[kWidth], offset[kWidth];  // offset: bias, for 16-bit types less weight mean

  __device__ Own(const Coefficients<W>& shared, int tx) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      mean[j] = shared.mean[tx * kWidth + j];
      weight[j] = shared.weight[tx * kWidth + j];
      offset[j] = shared.bias[tx * kWidth + j];
      if constexpr (kIsNarrow) offset[j] = fma(-mean[j], weight[j], offset[j]);
    }
  }
  __device__ W affine(int j, W x) const {
    if constexpr (kIsNarrow) return fma(x, weight[j], offset[j]);
    return (x - mean[j]) * weight[j] + offset[j];
  }
  // The output before pooling, as it is rounded: what the ReLU and a pooling window see.
  __device__ W output(int j, W x, bool relu) const {
    const W y = widen<T>(narrow<T>(affine(j, x)));
    return relu && y < 0 ? W(0) : y;  // a NaN stays, as in torch
  }
  // The same of the channels 2 p and 2 p + 1.
  template <class P>
  __device__ P outputs(int p, P x, bool relu) const {
    const P y = narrow_pair<T>(affine(2 * p, widen_low(x)), affine(2 * p + 1, widen_high(x)));
    return relu ? rectified(y) : y;
  }
};

// The place of the largest of four, the first of equals; a NaN wins, as in torch.
template <class W>
__device__ inline int winner(const W (&values)[4], W& best) {
  int at = 0;
  best = values[0];
#pragma unroll
  for (int i = 1; i < 4; ++i)
    if (values[i] > best || values[i] != values[i]) {
      best = values[i];
      at = i;
    }
  return at;
}

// How the windows of a lane are counted.
struct Windows {
  Divisor a_row, a_sample;
};

// A pooling window: its sample, and where its four values lie in the input.
struct WindowPlace {
  int sample, y, x;

  __device__ WindowPlace(int index, const Windows& windows) {
    sample = static_cast<int>(windows.a_sample.quotient(static_cast<uint32_t>(index)));
    const int rest = index - sample * static_cast<int>(windows.a_sample.divisor);
    y = static_cast<int>(windows.a_row.quotient(static_cast<uint32_t>(rest)));
    x = rest - y * static_cast<int>(windows.a_row.divisor);
  }
  // A window's first value; the others lie one pixel and one row on. 32 bits: a lane has fewer values.
  __device__ int pixel(const NormArgs& args) const {
    return (sample * args.height + y * 2) * args.width + x * 2;
  }
};

// What a pass is launched over. Threads own kWidth channels.
template <int kWidth>
struct Launch {
  int parts;
  Slice slice;
  dim3 grid;         // for a first pass: one block per part
  dim3 second_grid;  // for a second one, whose results no number of blocks changes

  // items: pixels or windows that a second pass walks over in every lane, with most_blocks in all.
  Launch(const NormArgs& args, int items, int most_blocks)
      : parts(num_parts(args)), slice(slice_of(args.channels / kWidth)) {
    const auto lanes = static_cast<unsigned>(args.lanes), slices = static_cast<unsigned>(slice.slices);
    grid = dim3(static_cast<unsigned>(parts), lanes, slices);
    constexpr int kRowsAThread = 4;
    const int rows = kThreads / slice.across * kRowsAThread;
    const int wanted = most_blocks / static_cast<int>(lanes * slices);
    second_grid =
        dim3(static_cast<unsigned>(std::max(1, std::min(wanted, (items + rows - 1) / rows))), lanes, slices);
  }
  explicit Launch(const NormArgs& args) : Launch(args, args.batch * args.height * args.width, kMostBlocks) {}
};

// Makes one part of many, where there are many: it then lies where the first one did. In
// batch_parts.cu.
enum class PartKind { kStatistics, kSums };
Parts merge_parts(const NormArgs& args, PartKind kind, int parts, cudaStream_t stream);

inline Windows windows_of(int high, int wide) {
  const auto count = [](int size) { return static_cast<uint32_t>(std::max(1, size)); };
  return {Divisor(count(wide)), Divisor(count(high * wide))};
}

// How many channels a thread owns: 16 bytes of them, half as many in passes that need many coefficients
// per channel and would otherwise run out of registers, one where channels do not allow it.
template <class T>
inline constexpr int kVector = 16 / sizeof(T);
template <class T>
inline constexpr int kHalfVector = kVector<T> > 4 ? kVector<T> / 2 : kVector<T>;

// Statistics of the slice's channels; the first block of a lane writes them, and moves the running ones.
template <class T, int kWidth>
__device__ void merge_statistics(const NormArgs& args, Parts parts, const ChannelThread<kWidth>& at,
                                 Coefficients<wide_t<T>>& shared) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const int channels_here = at.across * kWidth, first_channel = blockIdx.z * channels_here;
  const int own = first_channel + threadIdx.x % channels_here;
  const bool valid = own < args.channels;
  __shared__ S scratch[3][kThreads];
  S total[3] = {};  // count, sum and squares about the first part's mean
  const S* const partial =
      static_cast<const S*>(args.partial) + static_cast<int64_t>(at.lane) * parts.made * 3 * args.channels;
  S shift = 0;
  if (args.training) {
    if (valid)
      for (int part = 0; part < parts.left; ++part)
        if (partial[(part * 3 + 2) * args.channels + own] > 0) {
          shift = partial[part * 3 * args.channels + own];
          break;
        }
    add_parts<S, 3>(channels_here, parts.left, scratch, total, [&](int, int part, S(&sums)[3]) {
      if (!valid) return;
      // Nothing depends on what is loaded, so that many parts are under way at once.
      const S* const from = partial + part * 3 * args.channels + own;
      const S count = from[2 * args.channels], step = count > 0 ? from[0] - shift : S(0);
      sums[0] += count;
      sums[1] += count * step;
      sums[2] += from[args.channels] + count * step * step;
    });
  }
  if (threadIdx.x < channels_here && valid) {
    const auto wide = [&](const Stack& stack) {
      return static_cast<W*>(stack.data) + at.lane * stack.lane_stride + own;
    };
    S mean, variance;
    const S count = total[0];
    const bool is_single = args.training && count == S(1);
    if (args.training && !is_single) {
      const S share = count > 0 ? total[1] / count : S(0);
      mean = count > 0 ? shift + share : S(0);
      variance = count > 0 ? (total[2] - total[1] * share) / count : S(0);
      if (variance < 0) variance = 0;  // rounding; a NaN stays
    } else {
      mean = *wide(args.running_mean);
      variance = *wide(args.running_var);
    }
    const S scale = S(1) / sqrt(variance + static_cast<S>(args.eps));
    shared.mean[threadIdx.x] = static_cast<W>(mean);
    shared.scale[threadIdx.x] = static_cast<W>(scale);
    shared.weight[threadIdx.x] = static_cast<W>(*wide(args.weight) * scale);
    shared.bias[threadIdx.x] = *wide(args.bias);
    if (blockIdx.x == 0) {
      static_cast<W*>(args.mean)[static_cast<int64_t>(at.lane) * args.channels + own] = static_cast<W>(mean);
      static_cast<W*>(args.scale)[static_cast<int64_t>(at.lane) * args.channels + own] =
          static_cast<W>(scale);
      if (own == 0) static_cast<W*>(args.count)[at.lane] = static_cast<W>(count);
      if (own == 0 && is_single && args.fallbacks != nullptr) args.fallbacks[at.lane] += 1;
      // Statistics of a single value stay: other blocks read them meanwhile.
      if (args.training && count > 1) {
        const S momentum = static_cast<S>(args.momentum);
        const S unbiased = variance * (count / (count - 1));
        W *const running_mean = wide(args.running_mean), *const running_var = wide(args.running_var);
        *running_mean = static_cast<W>(*running_mean * (1 - momentum) + mean * momentum);
        *running_var = static_cast<W>(*running_var * (1 - momentum) + unbiased * momentum);
      }
    }
  }
  __syncthreads();
}

// The coefficients that forward left, for backward.
template <class T, int kWidth>
__device__ void load_coefficients(const NormArgs& args, const ChannelThread<kWidth>& at,
                                  Coefficients<wide_t<T>>& shared) {
  using W = wide_t<T>;
  const int channels_here = at.across * kWidth, own = blockIdx.z * channels_here + threadIdx.x;
  if (threadIdx.x < channels_here && own < args.channels) {
    const int64_t index = static_cast<int64_t>(at.lane) * args.channels + own;
    const W scale = static_cast<const W*>(args.scale)[index];
    shared.mean[threadIdx.x] = static_cast<const W*>(args.mean)[index];
    shared.scale[threadIdx.x] = scale;
    shared.weight[threadIdx.x] =
        (static_cast<const W*>(args.weight.data) + at.lane * args.weight.lane_stride)[own] * scale;
    shared.bias[threadIdx.x] = (static_cast<const W*>(args.bias.data) + at.lane * args.bias.lane_stride)[own];
  }
  __syncthreads();
}

// The gradient past the ReLU: 0 where the output was not above it (a NaN's passes, as in torch).
template <class T>
__device__ inline wide_t<T> past_relu(wide_t<T> grad, wide_t<T> y, bool relu) {
  return relu && y <= 0 ? wide_t<T>(0) : grad;
}

// What the input's gradient is made with: a thread's own coefficients, and the means of g and of g z times
// scale. It is weight (g - first - (value - mean) second), in the type of sums, since its terms nearly
// cancel; of 16-bit types weight g + slope value + rest, as Own has it.
template <class T, int kWidth>
struct GradientMeans {
  using W = wide_t<T>;
  const Own<T, kWidth>& own;
  W first[kWidth], second[kWidth];  // for 16-bit types: rest and slope

  __device__ GradientMeans(const Own<T, kWidth>& own_, const Coefficients<W>& shared, int tx) : own(own_) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      first[j] = shared.first[tx * kWidth + j];
      second[j] = shared.second[tx * kWidth + j];
      if constexpr (Own<T, kWidth>::kIsNarrow) {
        first[j] = own.weight[j] * fma(own.mean[j], second[j], -first[j]);
        second[j] = -own.weight[j] * second[j];
      }
    }
  }
  __device__ W gradient(int j, W g, W value) const {
    using S = sum_t<T>;
    if constexpr (Own<T, kWidth>::kIsNarrow) return fma(own.weight[j], g, fma(second[j], value, first[j]));
    return static_cast<W>(S(own.weight[j]) *
                          (S(g) - S(first[j]) - (S(value) - S(own.mean[j])) * S(second[j])));
  }
  // The gradients of the channels 2 p and 2 p + 1.
  template <class P>
  __device__ P gradients(int p, P g, P value) const {
    return narrow_pair<T>(gradient(2 * p, widen_low(g), widen_low(value)),
                          gradient(2 * p + 1, widen_high(g), widen_high(value)));
  }
};

// The sums over a lane's parts, as means into `shared`; the first block of a lane writes the gradients of
// weight and bias.
template <class T, int kWidth>
__device__ void merge_sums(const NormArgs& args, Parts parts, const ChannelThread<kWidth>& at,
                           Coefficients<wide_t<T>>& shared) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  __shared__ S scratch[2][kThreads];
  const int channels_here = at.across * kWidth,
            own = blockIdx.z * channels_here + threadIdx.x % channels_here;
  S total[2] = {};
  const S* const partial =
      static_cast<const S*>(args.partial) + static_cast<int64_t>(at.lane) * parts.made * 2 * args.channels;
  add_parts<S, 2>(channels_here, parts.left, scratch, total, [&](int, int part, S(&sums)[2]) {
    if (own >= args.channels) return;
    sums[0] += partial[part * 2 * args.channels + own];
    sums[1] += partial[(part * 2 + 1) * args.channels + own];
  });
  if (threadIdx.x < channels_here && own < args.channels) {
    const S scale = shared.scale[threadIdx.x], count = static_cast<const W*>(args.count)[at.lane];
    const bool has_own_statistics = args.training && count > 1;
    shared.first[threadIdx.x] = static_cast<W>(has_own_statistics ? total[0] / count : S(0));
    shared.second[threadIdx.x] = static_cast<W>(has_own_statistics ? total[1] * scale * scale / count : S(0));
    if (blockIdx.x == 0) {
      (static_cast<W*>(args.grad_bias.data) + at.lane * args.grad_bias.lane_stride)[own] =
          static_cast<W>(total[0]);
      (static_cast<W*>(args.grad_weight.data) + at.lane * args.grad_weight.lane_stride)[own] =
          static_cast<W>(total[1] * scale);
    }
  }
  __syncthreads();
}

// The second kernels of a 3x3 pool (batch_pool3x3.cu).
cudaError_t launch_pool3x3_apply(const NormArgs& args, Parts parts, cudaStream_t stream);
cudaError_t launch_pool3x3_gradient(const NormArgs& args, Parts parts, cudaStream_t stream);

}  // namespace espalier::lanes::batch_norm
