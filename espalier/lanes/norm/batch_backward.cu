// Batch norm of all lanes, backward: sums over the parts, then the input's gradient. See
// batch.cuh.
#include "espalier/lanes/norm/batch.cuh"
#include "espalier/lanes/row_sums.cuh"

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
    for (int i = 0; i < kAtOnce; ++i)
      if (there[i]) add(grad[i], value[i]);
  }
}

// A thread's sums of g, and of g (x - mean).
template <class T, int kWidth>
struct GradientSums {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const Own<T, kWidth>& own;
  S (&sum)[kWidth];
  S (&product)[kWidth];

  __device__ __forceinline__ void add(int j, W g, W value) const {
    sum[j] += g;
    product[j] += static_cast<S>(g) * (value - own.mean[j]);
  }
  // Past the ReLU, which is found again from the normalised value.
  __device__ __forceinline__ void add_normalised(int j, W grad, W value, bool relu) const {
    add(j, past_relu<T>(grad, own.output(j, value, relu), relu), value);
  }
  // The same of a vector.
  __device__ __forceinline__ void add_normalised(const Pack<T, kWidth>& grad, const Pack<T, kWidth>& value,
                                                 bool relu) const {
    if constexpr (kIsPaired<T, kWidth>) {
#pragma unroll
      for (int p = 0; p < kWidth / 2; ++p) {
        const pair_t<T> x = pair_of(value, p);
        pair_t<T> g = pair_of(grad, p);
        if (relu) g = where(above_zero(own.outputs(p, x, false)), g);
        add(2 * p, widen_low(g), widen_low(x));
        add(2 * p + 1, widen_high(g), widen_high(x));
      }
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        add_normalised(j, widen<T>(grad.value[j]), widen<T>(value.value[j]), relu);
    }
  }
};

// Past a residual: pixel by pixel, the ReLU found again from the output.
template <class T, int kWidth>
__device__ __forceinline__ void add_pixels(const NormArgs& args, int parts, const ChannelThread<kWidth>& at,
                                           const T* x, const T* grads, const bool* mask,
                                           const GradientSums<T, kWidth>& sums) {
  using W = wide_t<T>;
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
    for (int j = 0; j < kWidth; ++j) sums.add(j, past_relu<T>(grad[j], output[j], args.relu), values[j]);
  }
}

// Without a pool: window by window all the same, so that the sums have the same bits whether a pool is done
// here or by a kernel of its own: zeros are all that it adds to the sums of its winners.
template <class T, int kWidth>
__device__ __forceinline__ void add_windows(const NormArgs& args, const Windows& windows, const Range& range,
                                            const ChannelThread<kWidth>& at, const T* x, const T* grads,
                                            const bool* mask, const GradientSums<T, kWidth>& sums) {
  using W = wide_t<T>;
  for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
    const WindowPlace window(index, windows);
    if (mask != nullptr && !mask[window.sample]) continue;
    const int first_pixel = window.pixel(args);
    // What an odd edge leaves out is read as the window's first value, and left out.
    const bool inside[4] = {true, window.x * 2 + 1 < args.width, window.y * 2 + 1 < args.height,
                            window.x * 2 + 1 < args.width && window.y * 2 + 1 < args.height};
    Pack<T, kWidth> value[4], grad[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t place =
          static_cast<int64_t>(first_pixel + (inside[i] ? i / 2 * args.width + i % 2 : 0)) * args.channels;
      value[i] = *reinterpret_cast<const Pack<T, kWidth>*>(x + place);
      grad[i] = *reinterpret_cast<const Pack<T, kWidth>*>(grads + place);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (inside[i]) sums.add_normalised(grad[i], value[i], args.relu);
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
    const Own<T, kWidth> own(shared, at.tx);
    const GradientSums<T, kWidth> own_sums{own, sum, product};
    const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
    const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
    const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
    if constexpr (kResidual) {
      add_pixels<T, kWidth>(args, parts, at, x, grads, mask, own_sums);
    } else {
      const Range range(args.batch * static_cast<int>(windows.a_sample.divisor), at.part, parts);
      if (args.pool == NormPool::k2x2)
        each_winner<T, kWidth>(args, windows, range, at,
                               [&](const Pack<T, kWidth>& grad, const Pack<T, kWidth>& value) {
                                 own_sums.add_normalised(grad, value, args.relu);
                               });
      else
        add_windows<T, kWidth>(args, windows, range, at, x, grads, mask, own_sums);
    }
  }
  S all[2 * kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    all[j] = sum[j];
    all[kWidth + j] = product[j];
  }
  __shared__ S scratch[2 * kWidth][kThreads];
  add_rows<kThreads>(at.across, all, scratch);
  if (at.ty != 0 || !at.valid) return;
  S* const to =
      static_cast<S*>(args.partial) + (static_cast<int64_t>(at.lane) * parts + at.part) * 2 * args.channels;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    to[at.channel + j] = all[j];
    to[args.channels + at.channel + j] = all[kWidth + j];
  }
}

// The four values of a window of a 2x2 pool become their gradients: the winner's alone has the window's.
// Where no window covers them, at an odd edge, none has.
template <class T, int kWidth>
__device__ __forceinline__ void window_gradients(const GradientMeans<T, kWidth>& means, bool relu, bool there,
                                                 bool covered, const Pack<T, kWidth>& grad,
                                                 Pack<T, kWidth> (&values)[4]) {
  using W = wide_t<T>;
  if (!there) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = {};
    return;
  }
  if constexpr (kIsPaired<T, kWidth>) {
#pragma unroll
    for (int p = 0; p < kWidth / 2; ++p) {
      pair_t<T> x[4], outputs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = pair_of(values[i], p);
        outputs[i] = means.own.outputs(p, x[i], relu);
      }
      const Winners<pair_t<T>> winners(outputs);
      pair_t<T> g = pair_of(grad, p);
      g = where(!covered ? 0u : relu ? above_zero(winners.best) : ~0u, g);
#pragma unroll
      for (int i = 0; i < 4; ++i) set_pair(values[i], p, means.gradients(p, where(winners.mask(i), g), x[i]));
    }
  } else {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      W x[4], outputs[4], best;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = widen<T>(values[i].value[j]);
        outputs[i] = means.own.output(j, x[i], relu);
      }
      const int chosen = winner(outputs, best);
      const W g = covered ? past_relu<T>(widen<T>(grad.value[j]), best, relu) : W(0);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[i].value[j] = narrow<T>(means.gradient(j, i == chosen ? g : W(0), x[i]));
    }
  }
}

// The input's gradient before a 2x2 pool, window by window, with those that an odd edge leaves incomplete.
template <class T, int kWidth>
__device__ __forceinline__ void write_pooled(const NormArgs& args, const Windows& windows,
                                             const ChannelThread<kWidth>& at,
                                             const GradientMeans<T, kWidth>& means, const T* x,
                                             const T* grads, const bool* mask, T* grad_x) {
  using W = wide_t<T>;
  const int pooled_high = args.height / 2, pooled_wide = args.width / 2;
  const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;  // with those that no window covers
  const Range range(args.batch * high * wide, at.part, gridDim.x);
  // Several windows' loads are under way before the first is stored: what is not there is read as the last
  // one, and what no window covers as the first pixel's.
  constexpr int kAtOnce = 2;
  for (int first = range.begin + at.ty; first < range.end; first += at.rows * kAtOnce) {
    Pack<T, kWidth> value[kAtOnce][4], pooled[kAtOnce];
    bool there[kAtOnce], covered[kAtOnce], right[kAtOnce], below[kAtOnce];
    int first_pixel[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const WindowPlace window(min(first + n * at.rows, range.end - 1), windows);
      first_pixel[n] = window.pixel(args);
      there[n] = mask == nullptr || mask[window.sample];
      covered[n] = window.y < pooled_high && window.x < pooled_wide;
      right[n] = window.x * 2 + 1 < args.width;
      below[n] = window.y * 2 + 1 < args.height;
      const int64_t window_place =
          covered[n] ? (static_cast<int64_t>(window.sample) * pooled_high + window.y) * pooled_wide + window.x
                     : 0;
      pooled[n] = *reinterpret_cast<const Pack<T, kWidth>*>(grads + window_place * args.channels);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int step = (i / 2 == 1 && below[n] ? args.width : 0) + (i % 2 == 1 && right[n] ? 1 : 0);
        value[n][i] = *reinterpret_cast<const Pack<T, kWidth>*>(
            x + static_cast<int64_t>(first_pixel[n] + step) * args.channels);
      }
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (first + n * at.rows >= range.end) break;
      window_gradients<T, kWidth>(means, args.relu, there[n], covered[n], pooled[n], value[n]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if ((i / 2 == 0 || below[n]) && (i % 2 == 0 || right[n]))
          *reinterpret_cast<Pack<T, kWidth>*>(
              grad_x + static_cast<int64_t>(first_pixel[n] + i / 2 * args.width + i % 2) * args.channels) =
              value[n][i];
    }
  }
}

// The input's gradient, pixel by pixel, and with kResidual the residual's, of which one may not be wanted.
template <class T, int kWidth, bool kResidual>
__device__ __forceinline__ void write_pixels(const NormArgs& args, const ChannelThread<kWidth>& at,
                                             const GradientMeans<T, kWidth>& means, const T* x,
                                             const T* grads, const bool* mask, T* grad_x) {
  using W = wide_t<T>;
  const int pixels_a_sample = args.height * args.width;
  const Range range(args.batch * pixels_a_sample, at.part, gridDim.x);
  const T* const outputs =
      kResidual ? static_cast<const T*>(args.y.data) + at.lane * args.y.lane_stride + at.channel : nullptr;
  T* const grad_residual =
      kResidual && args.grad_residual.data != nullptr
          ? static_cast<T*>(args.grad_residual.data) + at.lane * args.grad_residual.lane_stride + at.channel
          : nullptr;
  constexpr int kAtOnce = kResidual ? 2 : 4;  // pixels that are read before the first is stored
  for (int first = range.begin + at.ty; first < range.end; first += at.rows * kAtOnce) {
    Pack<T, kWidth> value[kAtOnce], given[kAtOnce], output[kResidual ? kAtOnce : 1];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t place = static_cast<int64_t>(min(first + n * at.rows, range.end - 1)) * args.channels;
      value[n] = *reinterpret_cast<const Pack<T, kWidth>*>(x + place);
      given[n] = *reinterpret_cast<const Pack<T, kWidth>*>(grads + place);
      if constexpr (kResidual) output[n] = *reinterpret_cast<const Pack<T, kWidth>*>(outputs + place);
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int pixel = first + n * at.rows;
      if (pixel >= range.end) break;
      const int64_t place = static_cast<int64_t>(pixel) * args.channels;
      const bool there = mask == nullptr || mask[pixel / pixels_a_sample];
      if constexpr (kIsPaired<T, kWidth> && !kResidual) {
        Pack<T, kWidth> result = {};
        if (there)
#pragma unroll
          for (int p = 0; p < kWidth / 2; ++p) {
            const pair_t<T> x_here = pair_of(value[n], p);
            pair_t<T> g = pair_of(given[n], p);
            if (args.relu) g = where(above_zero(means.own.outputs(p, x_here, false)), g);
            set_pair(result, p, means.gradients(p, g, x_here));
          }
        *reinterpret_cast<Pack<T, kWidth>*>(grad_x + place) = result;
      } else {
        W values[kWidth], grad[kWidth];
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const W x_here = widen<T>(value[n].value[j]);
          const W y = kResidual ? widen<T>(output[kResidual ? n : 0].value[j])
                                : means.own.output(j, x_here, args.relu);
          grad[j] = there ? past_relu<T>(widen<T>(given[n].value[j]), y, args.relu) : W(0);
          values[j] = there ? means.gradient(j, grad[j], x_here) : W(0);
        }
        if (kResidual && grad_residual != nullptr) store<T, kWidth>(grad_residual + place, grad);
        if (!kResidual || args.grad_x.data != nullptr) store<T, kWidth>(grad_x + place, values);
      }
    }
  }
}

// grad_x = weight scale (g - mean of g - z mean of g z); weight scale g where the statistics were given, or
// stood in for those of a single value. grad_residual = g.
template <class T, int kWidth, bool kResidual>
__global__ void __launch_bounds__(kThreads, 3)
    gradient_kernel(NormArgs args, Windows windows, Parts parts, int across) {
  using W = wide_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  load_coefficients<T, kWidth>(args, at, shared);
  merge_sums<T, kWidth>(args, parts, at, shared);
  if (!at.valid || (args.grad_x.data == nullptr && (!kResidual || args.grad_residual.data == nullptr)))
    return;
  const Own<T, kWidth> own(shared, at.tx);
  const GradientMeans<T, kWidth> means(own, shared, at.tx);
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  T* const grad_x = static_cast<T*>(args.grad_x.data) + at.lane * args.grad_x.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
  if (args.pool == NormPool::k2x2)
    write_pooled<T, kWidth>(args, windows, at, means, x, grads, mask, grad_x);
  else
    write_pixels<T, kWidth, kResidual>(args, at, means, x, grads, mask, grad_x);
}

template <class T, int kWidth, bool kResidual>
cudaError_t launch(const NormArgs& args, cudaStream_t stream) {
  const bool is_pooled = args.pool == NormPool::k2x2;
  // With the windows that an odd edge leaves incomplete.
  const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;
  const Launch<kWidth> both(args,
                            is_pooled ? args.batch * high * wide : args.batch * args.height * args.width,
                            kMostGradientBlocks);
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
  if (args.y.data != nullptr) return launch<T, kWidth, true>(args, stream);
  return launch<T, kWidth, false>(args, stream);
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
