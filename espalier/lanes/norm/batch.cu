// Batch norm of all lanes, forward: statistics, then norm, ReLU and pool. See batch.cuh.
#include "espalier/lanes/norm/batch.cuh"
#include "espalier/lanes/row_sums.cuh"

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

// partial: [L][parts][3][C]: means, squared deviations, counts (the same for all channels of a part).
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) statistics_kernel(NormArgs args, int parts, int across) {
  using S = sum_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  S count = 0, shift[kWidth] = {}, sum[kWidth] = {}, squares[kWidth] = {};
  sum_pixels<T, kWidth>(args, at, parts, count, shift, sum, squares);
  // The threads' sums become sums about one value, the mean of the first that met any, and are added up: Chan
  // et al., "Algorithms for computing the sample variance".
  __shared__ S counts[kThreads], means[kWidth][kThreads];
  S spread[kWidth];
  counts[threadIdx.x] = count;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const S share = count > 0 ? sum[j] / count : S(0);
    means[j][threadIdx.x] = shift[j] + share;
    spread[j] = squares[j] - sum[j] * share;
  }
  __syncthreads();
  int row = 0;
  while (row + 1 < at.rows && counts[row * at.across + at.tx] == 0) ++row;
  S about[kWidth], all[2 * kWidth + 1];
  all[0] = count;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    about[j] = means[j][row * at.across + at.tx];
    const S step = count > 0 ? means[j][threadIdx.x] - about[j] : S(0);
    all[1 + j] = count * step;
    all[1 + kWidth + j] = spread[j] + count * step * step;
  }
  __shared__ S scratch[2 * kWidth + 1][kThreads];
  add_rows<kThreads>(at.across, all, scratch);
  if (at.ty != 0 || !at.valid) return;
  S* const to =
      static_cast<S*>(args.partial) + (static_cast<int64_t>(at.lane) * parts + at.part) * 3 * args.channels;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const S share = all[0] > 0 ? all[1 + j] / all[0] : S(0);
    to[at.channel + j] = about[j] + share;
    to[args.channels + at.channel + j] = all[1 + kWidth + j] - all[1 + j] * share;
    to[2 * args.channels + at.channel + j] = all[0];
  }
}

// Norm, ReLU and 2x2 pool, window by window, and the values that won theirs where those are wanted.
template <class T, int kWidth>
__device__ __forceinline__ void write_pooled(const NormArgs& args, const Windows& windows,
                                             const ChannelThread<kWidth>& at, const Own<T, kWidth>& own,
                                             const T* x, const bool* mask, T* out) {
  using W = wide_t<T>;
  const int high = args.height / 2, wide = args.width / 2;
  T* const winner_values =
      args.winner_values.data == nullptr
          ? nullptr
          : static_cast<T*>(args.winner_values.data) + at.lane * args.winner_values.lane_stride + at.channel;
  const Range range(args.batch * high * wide, at.part, gridDim.x);
  // Several windows' loads are under way before the first is stored: what is not there is read as the last
  // one.
  constexpr int kAtOnce = 2;
  for (int first = range.begin + at.ty; first < range.end; first += at.rows * kAtOnce) {
    Pack<T, kWidth> packs[kAtOnce][4];
    bool there[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const WindowPlace window(min(first + n * at.rows, range.end - 1), windows);
      const int pixel = window.pixel(args);
      there[n] = mask == nullptr || mask[window.sample];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        packs[n][i] = *reinterpret_cast<const Pack<T, kWidth>*>(
            x + static_cast<int64_t>(pixel + i / 2 * args.width + i % 2) * args.channels);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int index = first + n * at.rows;
      if (index >= range.end) break;
      const int64_t to = static_cast<int64_t>(index) * args.channels;
      if constexpr (kIsPaired<T, kWidth>) {
        Pack<T, kWidth> result = {}, value_of_best = {};
        if (there[n])
#pragma unroll
          for (int p = 0; p < kWidth / 2; ++p) {
            pair_t<T> values[4], outputs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              values[i] = pair_of(packs[n][i], p);
              outputs[i] = own.outputs(p, values[i], args.relu);
            }
            const Winners<pair_t<T>> winners(outputs);
            set_pair(result, p, winners.best);
            set_pair(value_of_best, p, winners.of(values));
          }
        *reinterpret_cast<Pack<T, kWidth>*>(out + to) = result;
        if (winner_values != nullptr) *reinterpret_cast<Pack<T, kWidth>*>(winner_values + to) = value_of_best;
      } else {
        W result[kWidth] = {}, value_of_best[kWidth] = {};
        if (there[n])
#pragma unroll
          for (int j = 0; j < kWidth; ++j) {
            W values[4], outputs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              values[i] = widen<T>(packs[n][i].value[j]);
              outputs[i] = own.output(j, values[i], args.relu);
            }
            value_of_best[j] = values[winner(outputs, result[j])];
          }
        store<T, kWidth>(out + to, result);
        if (winner_values != nullptr) store<T, kWidth>(winner_values + to, value_of_best);
      }
    }
  }
}

// Norm (+ residual) and ReLU, pixel by pixel.
template <class T, int kWidth, bool kResidual>
__device__ __forceinline__ void write_pixels(const NormArgs& args, const ChannelThread<kWidth>& at,
                                             const Own<T, kWidth>& own, const T* x, const bool* mask,
                                             T* out) {
  using W = wide_t<T>;
  const T* const residual =
      kResidual ? static_cast<const T*>(args.residual.data) + at.lane * args.residual.lane_stride + at.channel
                : nullptr;
  const int pixels_a_sample = args.height * args.width;
  const Range range(args.batch * pixels_a_sample, at.part, gridDim.x);
  constexpr int kAtOnce = 4;  // loads that are under way before the first pixel is stored
  for (int first = range.begin + at.ty; first < range.end; first += at.rows * kAtOnce) {
    Pack<T, kWidth> packs[kAtOnce], added[kResidual ? kAtOnce : 1];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t place = static_cast<int64_t>(min(first + n * at.rows, range.end - 1)) * args.channels;
      packs[n] = *reinterpret_cast<const Pack<T, kWidth>*>(x + place);
      if constexpr (kResidual) added[n] = *reinterpret_cast<const Pack<T, kWidth>*>(residual + place);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int pixel = first + n * at.rows;
      if (pixel >= range.end) break;
      const bool there = mask == nullptr || mask[pixel / pixels_a_sample];
      if constexpr (kIsPaired<T, kWidth> && !kResidual) {
        Pack<T, kWidth> result = {};
        if (there)
#pragma unroll
          for (int p = 0; p < kWidth / 2; ++p)
            set_pair(result, p, own.outputs(p, pair_of(packs[n], p), args.relu));
        *reinterpret_cast<Pack<T, kWidth>*>(out + static_cast<int64_t>(pixel) * args.channels) = result;
      } else {
        W values[kWidth];
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          W y = widen<T>(packs[n].value[j]);
          if constexpr (kResidual) {
            y = own.affine(j, y) + widen<T>(added[n].value[j]);
            if (args.relu && y < 0) y = 0;  // a NaN stays, as in torch
          } else {
            y = own.output(j, y, args.relu);
          }
          values[j] = there ? y : W(0);
        }
        store<T, kWidth>(out + static_cast<int64_t>(pixel) * args.channels, values);
      }
    }
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
  const Own<T, kWidth> own(shared, at.tx);
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
  const Launch<kApplied> second(args, args.batch * (args.height / scale) * (args.width / scale), kMostBlocks);
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
