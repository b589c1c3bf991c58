// Batch norm of all lanes, backward: sums over the parts, then the input's gradient. See
// batch.cuh.
#include "espalier/lanes/norm/batch.cuh"

namespace espalier::lanes {
namespace batch_norm {
namespace {

// What a thread meets of the windows of a 2x2 pool: the gradient of each and the value that won it. Several
// loads are under way at once: windows that are not there are read as the first one, and left out.
template <class T, int kWidth, class Add>
__device__ void each_winner(const NormArgs& args, const Windows& windows, const Range& range,
                            const ChannelThread<kWidth>& at, const Add& add) {
  using W = wide_t<T>;
  constexpr int kAtOnce = 4;
  const int high = args.height / 2, wide = args.width / 2;
  const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  const T* const values =
      static_cast<const T*>(args.winner_values.data) + at.lane * args.winner_values.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
  for (int first = range.begin + at.ty; first < range.end; first += at.rows * kAtOnce) {
    bool there[kAtOnce];
    Pack<T, kWidth> grad[kAtOnce], value[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = min(first + i * at.rows, range.end - 1);
      const WindowPlace window(index, windows);
      there[i] = first + i * at.rows < range.end && window.y < high && window.x < wide &&
                 (mask == nullptr || mask[window.sample]);
      const int64_t place =
          there[i]
              ? ((static_cast<int64_t>(window.sample) * high + window.y) * wide + window.x) * args.channels
              : 0;
      grad[i] = *reinterpret_cast<const Pack<T, kWidth>*>(grads + place);
      value[i] = *reinterpret_cast<const Pack<T, kWidth>*>(values + place);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      W wide_grad[kWidth], wide_value[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        wide_grad[j] = widen<T>(grad[i].value[j]);
        wide_value[j] = widen<T>(value[i].value[j]);
      }
      if (there[i]) add(wide_grad, wide_value);
    }
  }
}

// partial: [L][parts][2][C]: sums of g, and of g (x - mean).
template <class T, int kWidth, bool kResidual>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(NormArgs args, Windows windows, int parts, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  load_coefficients<T, kWidth>(args, at, shared);
  S sum[kWidth] = {}, product[kWidth] = {};
  if (at.valid) {
    const Own<W, kWidth> own(shared, at.tx);
    const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
    const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
    const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
    const auto add = [&](int j, W g, W value) {
      sum[j] += g;
      product[j] += static_cast<S>(g) * (value - own.mean[j]);
    };
    if constexpr (kResidual) {
      const T* const outputs = static_cast<const T*>(args.y.data) + at.lane * args.y.lane_stride + at.channel;
      const int pixels_a_sample = args.height * args.width;
      const Range range(args.batch * pixels_a_sample, at.part, parts);
#pragma unroll 2
      for (int pixel = range.begin + at.ty; pixel < range.end; pixel += at.rows) {
        if (mask != nullptr && !mask[pixel / pixels_a_sample]) continue;
        W values[kWidth], grad[kWidth], output[kWidth];
        load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels);
        load<T, kWidth>(grad, grads + static_cast<int64_t>(pixel) * args.channels);
        load<T, kWidth>(output, outputs + static_cast<int64_t>(pixel) * args.channels);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) add(j, past_relu<T>(grad[j], output[j], args.relu), values[j]);
      }
    } else {
      // Window by window, pooled or not: zeros are all that a pool adds to the sums of its winners, so these
      // have the same bits whether it is done here or by a kernel of its own.
      const Range range(args.batch * static_cast<int>(windows.a_sample.divisor), at.part, parts);
      if (args.pool == NormPool::k2x2)
        each_winner<T, kWidth>(
            args, windows, range, at, [&](const W(&grad)[kWidth], const W(&value)[kWidth]) {
#pragma unroll
              for (int j = 0; j < kWidth; ++j) {
                const W y = normalised<T>(value[j], own.mean[j], own.weight[j], own.bias[j], args.relu);
                add(j, past_relu<T>(grad[j], y, args.relu), value[j]);
              }
            });
      else
        for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
          const WindowPlace window(index, windows);
          if (mask != nullptr && !mask[window.sample]) continue;
          const int first_pixel = window.pixel(args);
          const auto pixel = [&](int i) {
            return static_cast<int64_t>(first_pixel + i / 2 * args.width + i % 2) * args.channels;
          };
          const auto is_inside = [&](int i) {
            return window.y * 2 + i / 2 < args.height && window.x * 2 + i % 2 < args.width;
          };
          W values[4][kWidth] = {}, grad[4][kWidth] = {};
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (is_inside(i)) {
              load<T, kWidth>(values[i], x + pixel(i));
              load<T, kWidth>(grad[i], grads + pixel(i));
            }
#pragma unroll
          for (int j = 0; j < kWidth; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              if (!is_inside(i)) continue;
              const W y = normalised<T>(values[i][j], own.mean[j], own.weight[j], own.bias[j], args.relu);
              add(j, past_relu<T>(grad[i][j], y, args.relu), values[i][j]);
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

// grad_x = weight scale (g - mean of g - z mean of g z); weight scale g where the statistics were given, or
// stood in for those of a single value. grad_residual = g.
template <class T, int kWidth, bool kResidual>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(NormArgs args, Windows windows, Parts parts, int across) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  load_coefficients<T, kWidth>(args, at, shared);
  merge_sums<T, kWidth>(args, parts, at, shared);
  if (!at.valid || (args.grad_x.data == nullptr && (!kResidual || args.grad_residual.data == nullptr)))
    return;
  const Own<W, kWidth> own(shared, at.tx);
  W first[kWidth], second[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    first[j] = shared.first[at.tx * kWidth + j];
    second[j] = shared.second[at.tx * kWidth + j];
  }
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  T* const grad_x = static_cast<T*>(args.grad_x.data) + at.lane * args.grad_x.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;

  if (args.pool == NormPool::k2x2) {
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
          values[i][j] = there ? input_gradient<T>(own.weight[j], i == chosen ? g : W(0), first[j],
                                                   values[i][j], own.mean[j], second[j])
                               : W(0);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (inside[i])
          store<T, kWidth>(
              grad_x + static_cast<int64_t>(first_pixel + i / 2 * args.width + i % 2) * args.channels,
              values[i]);
    }
    return;
  }
  const int pixels_a_sample = args.height * args.width;
  const Range range(args.batch * pixels_a_sample, at.part, gridDim.x);
  const T* const outputs =
      kResidual ? static_cast<const T*>(args.y.data) + at.lane * args.y.lane_stride + at.channel : nullptr;
  T* const grad_residual =
      kResidual && args.grad_residual.data != nullptr
          ? static_cast<T*>(args.grad_residual.data) + at.lane * args.grad_residual.lane_stride + at.channel
          : nullptr;
#pragma unroll 2
  for (int pixel = range.begin + at.ty; pixel < range.end; pixel += at.rows) {
    W values[kWidth], grad[kWidth];
    load<T, kWidth>(values, x + static_cast<int64_t>(pixel) * args.channels);
    load<T, kWidth>(grad, grads + static_cast<int64_t>(pixel) * args.channels);
    const bool there = mask == nullptr || mask[pixel / pixels_a_sample];
    if constexpr (kResidual) {
      W output[kWidth];
      load<T, kWidth>(output, outputs + static_cast<int64_t>(pixel) * args.channels);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        grad[j] = there ? past_relu<T>(grad[j], output[j], args.relu) : W(0);
        values[j] =
            there ? input_gradient<T>(own.weight[j], grad[j], first[j], values[j], own.mean[j], second[j])
                  : W(0);
      }
      if (grad_residual != nullptr)
        store<T, kWidth>(grad_residual + static_cast<int64_t>(pixel) * args.channels, grad);
      if (args.grad_x.data == nullptr) continue;
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const W y = normalised<T>(values[j], own.mean[j], own.weight[j], own.bias[j], args.relu);
        const W g = past_relu<T>(grad[j], y, args.relu);
        values[j] =
            there ? input_gradient<T>(own.weight[j], g, first[j], values[j], own.mean[j], second[j]) : W(0);
      }
    }
    store<T, kWidth>(grad_x + static_cast<int64_t>(pixel) * args.channels, values);
  }
}

template <class T, int kWidth, bool kResidual>
cudaError_t launch(const NormArgs& args, cudaStream_t stream) {
  const bool is_pooled = args.pool == NormPool::k2x2;
  // With the windows that an odd edge leaves incomplete.
  const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;
  const Launch<kWidth> both(args,
                            is_pooled ? args.batch * high * wide : args.batch * args.height * args.width);
  const Windows windows = windows_of(high, wide);
  reduce_kernel<T, kWidth, kResidual>
      <<<both.grid, kThreads, 0, stream>>>(args, windows, both.parts, both.slice.across);
  const Parts parts = merge_parts(args, PartKind::kSums, both.parts, stream);
  gradient_kernel<T, kWidth, kResidual>
      <<<both.second_grid, kThreads, 0, stream>>>(args, windows, parts, both.slice.across);
  return cudaGetLastError();
}

// Where windows overlap, the sums go over the values that won theirs: one per window.
template <class T, int kWidth>
cudaError_t launch_pool3x3(const NormArgs& args, cudaStream_t stream) {
  NormArgs pooled = args;
  pooled.x = args.winner_values;
  pooled.height = (args.height + 1) / 2;
  pooled.width = (args.width + 1) / 2;
  pooled.pool = NormPool::kNone;
  const Launch<kWidth> first(pooled);
  reduce_kernel<T, kWidth, false><<<first.grid, kThreads, 0, stream>>>(
      pooled, windows_of((pooled.height + 1) / 2, (pooled.width + 1) / 2), first.parts, first.slice.across);
  return launch_pool3x3_gradient(args, merge_parts(args, PartKind::kSums, first.parts, stream), stream);
}

template <class T, int kWidth>
cudaError_t launch(const NormArgs& args, cudaStream_t stream) {
  if (args.pool == NormPool::k3x3) return launch_pool3x3<T, kWidth>(args, stream);
  return args.y.data != nullptr ? launch<T, kWidth, true>(args, stream)
                                : launch<T, kWidth, false>(args, stream);
}

}  // namespace
}  // namespace batch_norm

cudaError_t launch_batch_norm_backward(const NormArgs& args, cudaStream_t stream) {
  using namespace batch_norm;
  return for_type(args.type, [&](auto value) {
    using T = decltype(value);
    return args.channels % kVector<T> == 0 ? launch<T, kHalfVector<T>>(args, stream)
                                           : launch<T, 1>(args, stream);
  });
}

}  // namespace espalier::lanes
