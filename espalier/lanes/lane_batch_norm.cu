// Batch norm of all lanes, with its ReLU and its 2x2 max pool.
//
// Forward: (1) every block takes a part of a lane's pixels and leaves mean and squared deviations of each
// channel; (2) every block adds the parts of its lane up, in order, and writes its share of the output.
// Backward: (1) a part's sums of g and g z (g the gradient past pool and ReLU, z the normalised input); (2)
// the parts' sum and the input's gradient. The winner of a pooling window and the ReLU are found again from
// the input, so nothing but the statistics is kept.
//
// Thread mapping: a thread owns a vector of channels (16 bytes, or one value) and walks over pixels, so its
// coefficients stay in registers. blockIdx: part of the pixels, lane, slice of the channels.
// Deterministic: the number of parts depends on the lane's shape alone.
#include <algorithm>

#include "espalier/core/divisor.h"
#include "espalier/lanes/lane_norm_kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;
constexpr int kValuesAPart = 131072;  // 256 KiB of bf16: long enough to pay for adding the parts up
constexpr int kMostParts = 128;

int num_parts(const NormArgs& args) {
  const int64_t values = static_cast<int64_t>(args.batch) * args.height * args.width * args.channels;
  return static_cast<int>(std::clamp<int64_t>(values / kValuesAPart, 1, kMostParts));
}

// How a block's threads lie over channels and pixels.
struct Slice {
  int across;  // threads across channels: a power of two
  int slices;  // blocks across channels
};

Slice slice_of(int vectors) {
  Slice slice{1, 0};
  while (slice.across * 2 <= std::min(vectors, 32)) slice.across *= 2;
  slice.slices = (vectors + slice.across - 1) / slice.across;
  return slice;
}

// The thread's place.
template <int kWidth>
struct Place {
  int lane, part, across, rows, tx, ty, channel;
  bool valid;  // has channels

  __device__ Place(const NormArgs& args, int across_)
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

// partial: [L][parts][3][C]: means, squared deviations, counts (the same for all channels of a part).
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) statistics_kernel(NormArgs args, int parts, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const Place<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  const int pixels_a_sample = args.height * args.width;
  const Range range(args.batch * pixels_a_sample, at.part, parts);
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;

  // About the first value that the thread meets: sums of squares then lose nothing to a large mean.
  S count = 0, shift[kWidth] = {}, sum[kWidth] = {}, squares[kWidth] = {};
  int first = range.begin + at.ty;
  if (mask != nullptr)
    while (first < range.end && !mask[first / pixels_a_sample]) first += at.rows;
  if (at.valid && first < range.end) {
    W values[kWidth];
    load<T, kWidth>(values, x + static_cast<int64_t>(first) * args.channels);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) shift[j] = values[j];
    // No branches, so that several loads are under way at once: what is not there is read as the last pixel,
    // and counts nothing.
    constexpr int kAtOnce = 4;
    for (; first < range.end; first += at.rows * kAtOnce) {
      Pack<T, kWidth> packs[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        packs[i] = *reinterpret_cast<const Pack<T, kWidth>*>(
            x + static_cast<int64_t>(min(first + i * at.rows, range.end - 1)) * args.channels);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int pixel = first + i * at.rows;
        const bool there = pixel < range.end && (mask == nullptr || mask[pixel / pixels_a_sample]);
        count += there ? S(1) : S(0);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const S centred = there ? widen<T>(packs[i].value[j]) - shift[j] : S(0);
          sum[j] += centred;
          squares[j] += centred * centred;
        }
      }
    }
  }
  S mean[kWidth], spread[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const S share = count > 0 ? sum[j] / count : S(0);
    mean[j] = shift[j] + share;
    spread[j] = squares[j] - sum[j] * share;
  }

  // Chan et al., "Algorithms for computing the sample variance": pairs of threads, halving.
  __shared__ S counts[kThreads];
  __shared__ S means[kWidth][kThreads], spreads[kWidth][kThreads];
  counts[threadIdx.x] = count;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    means[j][threadIdx.x] = mean[j];
    spreads[j][threadIdx.x] = spread[j];
  }
  for (int half = at.rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (at.ty < half) {
      const int other = threadIdx.x + half * at.across;
      const S more = counts[other], all = counts[threadIdx.x] + more;
      if (more > 0) {
        const S share = more / all;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const S step = means[j][other] - means[j][threadIdx.x];
          spreads[j][threadIdx.x] += spreads[j][other] + step * step * counts[threadIdx.x] * share;
          means[j][threadIdx.x] =
              counts[threadIdx.x] > 0 ? means[j][threadIdx.x] + step * share : means[j][other];
        }
        counts[threadIdx.x] = all;
      }
    }
  }
  if (at.ty != 0 || !at.valid) return;
  S* const to =
      static_cast<S*>(args.partial) + (static_cast<int64_t>(at.lane) * parts + at.part) * 3 * args.channels;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    to[at.channel + j] = means[j][threadIdx.x];
    to[args.channels + at.channel + j] = spreads[j][threadIdx.x];
    to[2 * args.channels + at.channel + j] = counts[threadIdx.x];
  }
}

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

// Statistics of the slice's channels; the first block of a lane writes them, and moves the running ones.
template <class T, int kWidth>
__device__ void merge_statistics(const NormArgs& args, int parts, const Place<kWidth>& at,
                                 Coefficients<wide_t<T>>& shared) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const int channels_here = at.across * kWidth, first_channel = blockIdx.z * channels_here;
  const int own = first_channel + threadIdx.x % channels_here;
  const bool valid = own < args.channels;
  __shared__ S scratch[3][kThreads];
  S total[3] = {};  // count, sum and squares about the first part's mean
  const S* const partial =
      static_cast<const S*>(args.partial) + static_cast<int64_t>(at.lane) * parts * 3 * args.channels;
  S shift = 0;
  if (args.training) {
    if (valid)
      for (int part = 0; part < parts; ++part)
        if (partial[(part * 3 + 2) * args.channels + own] > 0) {
          shift = partial[part * 3 * args.channels + own];
          break;
        }
    add_parts<S, 3>(channels_here, parts, scratch, total, [&](int, int part, S(&sums)[3]) {
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
    if (args.training) {
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
      if (args.training && count > 0) {
        const S momentum = static_cast<S>(args.momentum);
        const S unbiased = variance * (count / (count > 1 ? count - 1 : S(1)));
        W *const running_mean = wide(args.running_mean), *const running_var = wide(args.running_var);
        *running_mean = static_cast<W>(*running_mean * (1 - momentum) + mean * momentum);
        *running_var = static_cast<W>(*running_var * (1 - momentum) + unbiased * momentum);
      }
    }
  }
  __syncthreads();
}

// A thread's own coefficients.
template <class W, int kWidth>
struct Own {
  W mean[kWidth], weight[kWidth], bias[kWidth];

  __device__ Own(const Coefficients<W>& shared, int tx) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      mean[j] = shared.mean[tx * kWidth + j];
      weight[j] = shared.weight[tx * kWidth + j];
      bias[j] = shared.bias[tx * kWidth + j];
    }
  }
};

// The output before pooling, as it is rounded: what the ReLU and a pooling window see.
template <class T>
__device__ inline wide_t<T> normalised(wide_t<T> x, wide_t<T> mean, wide_t<T> weight, wide_t<T> bias,
                                       bool relu) {
  const wide_t<T> y = widen<T>(narrow<T>((x - mean) * weight + bias));
  return relu && y < 0 ? wide_t<T>(0) : y;  // a NaN stays, as in torch
}

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
  // Of a window's first value; the others lie one pixel and one row on. 32 bits: a lane has fewer values.
  __device__ int pixel(const NormArgs& args) const {
    return (sample * args.height + y * 2) * args.width + x * 2;
  }
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(NormArgs args, Windows windows, int parts, int across) {
  using W = wide_t<T>;
  const Place<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  merge_statistics<T, kWidth>(args, parts, at, shared);
  if (!at.valid) return;
  const Own<W, kWidth> own(shared, at.tx);
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  T* const out = static_cast<T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;

  if (args.pooled) {
    const int high = args.height / 2, wide = args.width / 2;
    const Range range(args.batch * high * wide, at.part, gridDim.x);
    for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
      const WindowPlace window(index, windows);
      const int first_pixel = window.pixel(args);
      W result[kWidth] = {};
      if (mask == nullptr || mask[window.sample]) {
        W values[4][kWidth];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          load<T, kWidth>(values[i],
                          x + static_cast<int64_t>(first_pixel + i / 2 * args.width + i % 2) * args.channels);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          W four[4];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            four[i] = normalised<T>(values[i][j], own.mean[j], own.weight[j], own.bias[j], args.relu);
          winner(four, result[j]);
        }
      }
      store<T, kWidth>(out + static_cast<int64_t>(index) * args.channels, result);
    }
    return;
  }
  const int pixels_a_sample = args.height * args.width;
  const Range range(args.batch * pixels_a_sample, at.part, gridDim.x);
#pragma unroll 4
  for (int pixel = range.begin + at.ty; pixel < range.end; pixel += at.rows) {
    W values[kWidth];
    load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels);
    const bool there = mask == nullptr || mask[pixel / pixels_a_sample];
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      values[j] = there ? normalised<T>(values[j], own.mean[j], own.weight[j], own.bias[j], args.relu) : W(0);
    store<T, kWidth>(out + static_cast<int64_t>(pixel) * args.channels, values);
  }
}

// The coefficients that forward left, for backward.
template <class T, int kWidth>
__device__ void load_coefficients(const NormArgs& args, const Place<kWidth>& at,
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

// partial: [L][parts][2][C]: sums of g, and of g (x - mean).
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(NormArgs args, Windows windows, int parts, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const Place<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  load_coefficients<T, kWidth>(args, at, shared);
  S sum[kWidth] = {}, product[kWidth] = {};
  if (at.valid) {
    const Own<W, kWidth> own(shared, at.tx);
    const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
    const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
    const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
    if (args.pooled) {
      const int high = args.height / 2, wide = args.width / 2;
      const Range range(args.batch * high * wide, at.part, parts);
      for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
        const WindowPlace window(index, windows);
        const int first_pixel = window.pixel(args);
        if (mask != nullptr && !mask[window.sample]) continue;
        W values[4][kWidth], grad[kWidth];
        load<T, kWidth>(grad, grads + static_cast<int64_t>(index) * args.channels);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          load<T, kWidth>(values[i],
                          x + static_cast<int64_t>(first_pixel + i / 2 * args.width + i % 2) * args.channels);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          W four[4], best;
#pragma unroll
          for (int i = 0; i < 4; ++i)
            four[i] = normalised<T>(values[i][j], own.mean[j], own.weight[j], own.bias[j], args.relu);
          const int chosen = winner(four, best);
          const W g = past_relu<T>(grad[j], best, args.relu);
          const W value = chosen == 0   ? values[0][j]
                          : chosen == 1 ? values[1][j]
                          : chosen == 2 ? values[2][j]
                                        : values[3][j];
          sum[j] += g;
          product[j] += static_cast<S>(g) * (value - own.mean[j]);
        }
      }
    } else {
      const int pixels_a_sample = args.height * args.width;
      const Range range(args.batch * pixels_a_sample, at.part, parts);
#pragma unroll 2
      for (int pixel = range.begin + at.ty; pixel < range.end; pixel += at.rows) {
        if (mask != nullptr && !mask[pixel / pixels_a_sample]) continue;
        W values[kWidth], grad[kWidth];
        load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels);
        load<T, kWidth>(grad, grads + static_cast<int64_t>(pixel) * args.channels);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const W y = normalised<T>(values[j], own.mean[j], own.weight[j], own.bias[j], args.relu);
          const W g = past_relu<T>(grad[j], y, args.relu);
          sum[j] += g;
          product[j] += static_cast<S>(g) * (values[j] - own.mean[j]);
        }
      }
    }
  }
  __shared__ S sums[kWidth][kThreads], products[kWidth][kThreads];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    sums[j][threadIdx.x] = sum[j];
    products[j][threadIdx.x] = product[j];
  }
  for (int half = at.rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (at.ty < half)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sums[j][threadIdx.x] += sums[j][threadIdx.x + half * at.across];
        products[j][threadIdx.x] += products[j][threadIdx.x + half * at.across];
      }
  }
  if (at.ty != 0 || !at.valid) return;
  S* const to =
      static_cast<S*>(args.partial) + (static_cast<int64_t>(at.lane) * parts + at.part) * 2 * args.channels;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    to[at.channel + j] = sums[j][threadIdx.x];
    to[args.channels + at.channel + j] = products[j][threadIdx.x];
  }
}

// of_x = weight scale (g - mean of g - z mean of g z); weight scale g where the statistics were given.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(NormArgs args, Windows windows, int parts, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const Place<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  __shared__ S scratch[2][kThreads];
  load_coefficients<T, kWidth>(args, at, shared);
  const int channels_here = at.across * kWidth,
            own_channel = blockIdx.z * channels_here + threadIdx.x % channels_here;
  {
    S total[2] = {};
    const S* const partial =
        static_cast<const S*>(args.partial) + static_cast<int64_t>(at.lane) * parts * 2 * args.channels;
    add_parts<S, 2>(channels_here, parts, scratch, total, [&](int, int part, S(&sums)[2]) {
      if (own_channel >= args.channels) return;
      sums[0] += partial[part * 2 * args.channels + own_channel];
      sums[1] += partial[(part * 2 + 1) * args.channels + own_channel];
    });
    if (threadIdx.x < channels_here && own_channel < args.channels) {
      const S scale = shared.scale[threadIdx.x], count = static_cast<const W*>(args.count)[at.lane];
      const S divisor = count > 1 ? count : S(1);
      shared.first[threadIdx.x] = static_cast<W>(args.training ? total[0] / divisor : S(0));
      shared.second[threadIdx.x] = static_cast<W>(args.training ? total[1] * scale * scale / divisor : S(0));
      if (blockIdx.x == 0) {
        (static_cast<W*>(args.of_bias.data) + at.lane * args.of_bias.lane_stride)[own_channel] =
            static_cast<W>(total[0]);
        (static_cast<W*>(args.of_weight.data) + at.lane * args.of_weight.lane_stride)[own_channel] =
            static_cast<W>(total[1] * scale);
      }
    }
    __syncthreads();
  }
  if (!at.valid || args.of_x.data == nullptr) return;
  const Own<W, kWidth> own(shared, at.tx);
  W first[kWidth], second[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    first[j] = shared.first[at.tx * kWidth + j];
    second[j] = shared.second[at.tx * kWidth + j];
  }
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  T* const of_x = static_cast<T*>(args.of_x.data) + at.lane * args.of_x.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;

  if (args.pooled) {
    const int pooled_high = args.height / 2, pooled_wide = args.width / 2;
    const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;  // with those that no window covers
    const Range range(args.batch * high * wide, at.part, gridDim.x);
    for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
      const WindowPlace window(index, windows);
      const int first_pixel = window.pixel(args);
      const bool there = mask == nullptr || mask[window.sample];
      const bool covered = window.y < pooled_high && window.x < pooled_wide;
      bool inside[4];
      W values[4][kWidth] = {}, grad[kWidth] = {};
      if (there && covered)
        load<T, kWidth>(
            grad, grads + ((static_cast<int64_t>(window.sample) * pooled_high + window.y) * pooled_wide +
                           window.x) *
                              args.channels);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        inside[i] = window.y * 2 + i / 2 < args.height && window.x * 2 + i % 2 < args.width;
        if (inside[i])
          load<T, kWidth>(values[i],
                          x + static_cast<int64_t>(first_pixel + i / 2 * args.width + i % 2) * args.channels);
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        int chosen = -1;
        W g = 0;
        if (covered) {
          W four[4], best;
#pragma unroll
          for (int i = 0; i < 4; ++i)
            four[i] = normalised<T>(values[i][j], own.mean[j], own.weight[j], own.bias[j], args.relu);
          chosen = winner(four, best);
          g = past_relu<T>(grad[j], best, args.relu);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
          values[i][j] = there ? own.weight[j] * ((i == chosen ? g : W(0)) - first[j] -
                                                  (values[i][j] - own.mean[j]) * second[j])
                               : W(0);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (inside[i])
          store<T, kWidth>(
              of_x + static_cast<int64_t>(first_pixel + i / 2 * args.width + i % 2) * args.channels,
              values[i]);
    }
    return;
  }
  const int pixels_a_sample = args.height * args.width;
  const Range range(args.batch * pixels_a_sample, at.part, gridDim.x);
#pragma unroll 2
  for (int pixel = range.begin + at.ty; pixel < range.end; pixel += at.rows) {
    W values[kWidth], grad[kWidth];
    load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels);
    load<T, kWidth>(grad, grads + static_cast<int64_t>(pixel) * args.channels);
    const bool there = mask == nullptr || mask[pixel / pixels_a_sample];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const W y = normalised<T>(values[j], own.mean[j], own.weight[j], own.bias[j], args.relu);
      const W g = past_relu<T>(grad[j], y, args.relu);
      values[j] = there ? own.weight[j] * (g - first[j] - (values[j] - own.mean[j]) * second[j]) : W(0);
    }
    store<T, kWidth>(of_x + static_cast<int64_t>(pixel) * args.channels, values);
  }
}

// Threads own kWidth channels in the first pass forward, kApplied in the others, whose many coefficients a
// thread would else not have the registers for.
template <class T, int kWidth, int kApplied>
cudaError_t launch(const NormArgs& args, bool backward, cudaStream_t stream) {
  const Slice slice = slice_of(args.channels / kWidth), applied = slice_of(args.channels / kApplied);
  const int parts = num_parts(args);
  const dim3 grid(parts, args.lanes, slice.slices), applied_grid(parts, args.lanes, applied.slices);
  const auto count = [&](int size) { return static_cast<uint32_t>(size); };
  const int high = args.height / 2, wide = args.width / 2;
  const Windows windows{Divisor(count(std::max(1, wide))), Divisor(count(std::max(1, high * wide)))};
  if (!backward) {
    if (args.training) statistics_kernel<T, kWidth><<<grid, kThreads, 0, stream>>>(args, parts, slice.across);
    apply_kernel<T, kApplied><<<applied_grid, kThreads, 0, stream>>>(args, windows, parts, applied.across);
    return cudaGetLastError();
  }
  reduce_kernel<T, kApplied><<<applied_grid, kThreads, 0, stream>>>(args, windows, parts, applied.across);
  // With the windows that an odd edge leaves incomplete.
  const int all_high = (args.height + 1) / 2, all_wide = (args.width + 1) / 2;
  const Windows all{Divisor(count(all_wide)), Divisor(count(all_high * all_wide))};
  gradient_kernel<T, kApplied><<<applied_grid, kThreads, 0, stream>>>(args, all, parts, applied.across);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch(const NormArgs& args, bool backward, cudaStream_t stream) {
  constexpr int kVector = 16 / sizeof(T);
  constexpr int kHalf = kVector > 4 ? kVector / 2 : kVector;
  return args.channels % kVector == 0 ? launch<T, kVector, kHalf>(args, backward, stream)
                                      : launch<T, 1, 1>(args, backward, stream);
}

cudaError_t launch(const NormArgs& args, bool backward, cudaStream_t stream) {
  return for_type(args.type, [&](auto value) { return launch<decltype(value)>(args, backward, stream); });
}

}  // namespace

int64_t batch_norm_partials(const NormArgs& args) {
  return static_cast<int64_t>(args.lanes) * num_parts(args) * 3 * args.channels;
}

cudaError_t launch_batch_norm_forward(const NormArgs& args, cudaStream_t stream) {
  return launch(args, false, stream);
}

cudaError_t launch_batch_norm_backward(const NormArgs& args, cudaStream_t stream) {
  return launch(args, true, stream);
}

}  // namespace espalier::lanes
