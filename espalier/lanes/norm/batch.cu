// Batch norm of all lanes, forward: statistics, then norm, ReLU and pool. See batch.cuh.
#include "espalier/lanes/norm/batch.cuh"

namespace espalier::lanes {
namespace batch_norm {
namespace {

// A thread's sums over its pixels, about the first value that it meets: sums of squares then lose nothing to
// a large mean.
template <class T, int kWidth>
__device__ __forceinline__ void sum_pixels(const NormArgs& args, const ChannelThread<kWidth>& at, int parts,
                                           sum_t<T>& count, sum_t<T> (&shift)[kWidth],
                                           sum_t<T> (&sum)[kWidth], sum_t<T> (&squares)[kWidth]) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const int pixels_a_sample = args.height * args.width;
  const Range range(args.batch * pixels_a_sample, at.part, parts);
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
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
}

// The statistics of the threads that share channels become one, in pairs, halving: the first of them has them
// all. Chan et al., "Algorithms for computing the sample variance".
template <int kWidth, class S>
__device__ __forceinline__ void join_threads(const ChannelThread<kWidth>& at, S (&counts)[kThreads],
                                             S (&means)[kWidth][kThreads], S (&spreads)[kWidth][kThreads]) {
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
}

// partial: [L][parts][3][C]: means, squared deviations, counts (the same for all channels of a part).
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) statistics_kernel(NormArgs args, int parts, int across) {
  using S = sum_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  S count = 0, shift[kWidth] = {}, sum[kWidth] = {}, squares[kWidth] = {};
  sum_pixels<T, kWidth>(args, at, parts, count, shift, sum, squares);
  S mean[kWidth], spread[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const S share = count > 0 ? sum[j] / count : S(0);
    mean[j] = shift[j] + share;
    spread[j] = squares[j] - sum[j] * share;
  }
  __shared__ S counts[kThreads];
  __shared__ S means[kWidth][kThreads], spreads[kWidth][kThreads];
  counts[threadIdx.x] = count;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    means[j][threadIdx.x] = mean[j];
    spreads[j][threadIdx.x] = spread[j];
  }
  join_threads<kWidth>(at, counts, means, spreads);
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

// Norm, ReLU and 2x2 pool, window by window, and the values that won theirs where those are wanted.
template <class T, int kWidth>
__device__ __forceinline__ void write_pooled(const NormArgs& args, const Windows& windows,
                                             const ChannelThread<kWidth>& at,
                                             const Own<wide_t<T>, kWidth>& own, const T* x, const bool* mask,
                                             T* out) {
  using W = wide_t<T>;
  const int high = args.height / 2, wide = args.width / 2;
  T* const winner_values =
      args.winner_values.data == nullptr
          ? nullptr
          : static_cast<T*>(args.winner_values.data) + at.lane * args.winner_values.lane_stride + at.channel;
  const Range range(args.batch * high * wide, at.part, gridDim.x);
  for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
    const WindowPlace window(index, windows);
    const int first_pixel = window.pixel(args);
    W result[kWidth] = {}, value_of_best[kWidth] = {};
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
        const int chosen = winner(four, result[j]);
        value_of_best[j] = chosen == 0   ? values[0][j]
                           : chosen == 1 ? values[1][j]
                           : chosen == 2 ? values[2][j]
                                         : values[3][j];
      }
    }
    store<T, kWidth>(out + static_cast<int64_t>(index) * args.channels, result);
    if (winner_values != nullptr)
      store<T, kWidth>(winner_values + static_cast<int64_t>(index) * args.channels, value_of_best);
  }
}

// Norm (+ residual) and ReLU, pixel by pixel.
template <class T, int kWidth, bool kResidual>
__device__ __forceinline__ void write_pixels(const NormArgs& args, const ChannelThread<kWidth>& at,
                                             const Own<wide_t<T>, kWidth>& own, const T* x, const bool* mask,
                                             T* out) {
  using W = wide_t<T>;
  const T* const residual =
      kResidual ? static_cast<const T*>(args.residual.data) + at.lane * args.residual.lane_stride + at.channel
                : nullptr;
  const int pixels_a_sample = args.height * args.width;
  const Range range(args.batch * pixels_a_sample, at.part, gridDim.x);
#pragma unroll 4
  for (int pixel = range.begin + at.ty; pixel < range.end; pixel += at.rows) {
    W values[kWidth];
    load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels);
    const bool there = mask == nullptr || mask[pixel / pixels_a_sample];
    if constexpr (kResidual) {
      W added[kWidth];
      load<T, kWidth>(added, residual + static_cast<int64_t>(pixel) * args.channels);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const W sum = (values[j] - own.mean[j]) * own.weight[j] + own.bias[j] + added[j];
        values[j] = there ? (args.relu && sum < 0 ? W(0) : sum) : W(0);  // a NaN stays, as in torch
      }
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        values[j] =
            there ? normalised<T>(values[j], own.mean[j], own.weight[j], own.bias[j], args.relu) : W(0);
    }
    store<T, kWidth>(out + static_cast<int64_t>(pixel) * args.channels, values);
  }
}

template <class T, int kWidth, bool kResidual>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(NormArgs args, Windows windows, Parts parts, int across) {
  using W = wide_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  merge_statistics<T, kWidth>(args, parts, at, shared);
  if (!at.valid) return;
  const Own<W, kWidth> own(shared, at.tx);
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  T* const out = static_cast<T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
  if (args.pool == NormPool::k2x2)
    write_pooled<T, kWidth>(args, windows, at, own, x, mask, out);
  else
    write_pixels<T, kWidth, kResidual>(args, at, own, x, mask, out);
}

template <class T, int kWidth, int kApplied>
cudaError_t launch(const NormArgs& args, cudaStream_t stream) {
  const Launch<kWidth> first(args);
  Parts parts{first.parts, first.parts};
  if (args.training) {
    statistics_kernel<T, kWidth><<<first.grid, kThreads, 0, stream>>>(args, first.parts, first.slice.across);
    parts = merge_parts(args, PartKind::kStatistics, first.parts, stream);
  }
  if (args.pool == NormPool::k3x3) return launch_pool3x3_apply(args, parts, stream);
  const int scale = args.pool == NormPool::k2x2 ? 2 : 1;
  const Launch<kApplied> second(args, args.batch * (args.height / scale) * (args.width / scale));
  const auto apply =
      args.residual.data != nullptr ? apply_kernel<T, kApplied, true> : apply_kernel<T, kApplied, false>;
  apply<<<second.second_grid, kThreads, 0, stream>>>(args, windows_of(args.height / 2, args.width / 2), parts,
                                                     second.slice.across);
  return cudaGetLastError();
}

}  // namespace
}  // namespace batch_norm

int64_t batch_norm_partials(const NormArgs& args) {
  return static_cast<int64_t>(args.lanes) * batch_norm::num_parts(args) * 3 * args.channels;
}

cudaError_t launch_batch_norm_forward(const NormArgs& args, cudaStream_t stream) {
  using namespace batch_norm;
  return for_type(args.type, [&](auto value) {
    using T = decltype(value);
    return args.channels % kVector<T> == 0 ? launch<T, kVector<T>, kHalfVector<T>>(args, stream)
                                           : launch<T, 1, 1>(args, stream);
  });
}

}  // namespace espalier::lanes
