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

// A thread's sums of g, and of g (x - mean).
template <class T, int kWidth>
struct GradientSums {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const Own<W, kWidth>& own;
  S (&sum)[kWidth];
  S (&product)[kWidth];

  __device__ __forceinline__ void add(int j, W g, W value) const {
    sum[j] += g;
    product[j] += static_cast<S>(g) * (value - own.mean[j]);
  }
  // Past the ReLU, which is found again from the normalised value.
  __device__ __forceinline__ void add_normalised(int j, W grad, W value, bool relu) const {
    const W y = normalised<T>(value, own.mean[j], own.weight[j], own.bias[j], relu);
    add(j, past_relu<T>(grad, y, relu), value);
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
      for (int i = 0; i < 4; ++i)
        if (is_inside(i)) sums.add_normalised(j, grad[i][j], values[i][j], args.relu);
  }
}

// Adds the sums of the threads that share channels up, in pairs, halving: the first of them has them all.
template <int kWidth, class S>
__device__ __forceinline__ void add_threads(const ChannelThread<kWidth>& at, S (&sums)[kWidth][kThreads],
                                            S (&products)[kWidth][kThreads]) {
  for (int half = at.rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (at.ty < half)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sums[j][threadIdx.x] += sums[j][threadIdx.x + half * at.across];
        products[j][threadIdx.x] += products[j][threadIdx.x + half * at.across];
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
                               [&](const W(&grad)[kWidth], const W(&value)[kWidth]) {
#pragma unroll
                                 for (int j = 0; j < kWidth; ++j)
                                   own_sums.add_normalised(j, grad[j], value[j], args.relu);
                               });
      else
        add_windows<T, kWidth>(args, windows, range, at, x, grads, mask, own_sums);
    }
  }
  __shared__ S sums[kWidth][kThreads], products[kWidth][kThreads];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    sums[j][threadIdx.x] = sum[j];
    products[j][threadIdx.x] = product[j];
  }
  add_threads<kWidth>(at, sums, products);
  if (at.ty != 0 || !at.valid) return;
  S* const to =
      static_cast<S*>(args.partial) + (static_cast<int64_t>(at.lane) * parts + at.part) * 2 * args.channels;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    to[at.channel + j] = sums[j][threadIdx.x];
    to[args.channels + at.channel + j] = products[j][threadIdx.x];
  }
}

// What the input's gradient is made with: a thread's own coefficients, and the means of g and of g z.
template <class T, int kWidth>
struct GradientMeans {
  using W = wide_t<T>;
  const Own<W, kWidth>& own;
  W first[kWidth], second[kWidth];

  __device__ __forceinline__ GradientMeans(const Own<W, kWidth>& own_, const Coefficients<W>& shared, int tx)
      : own(own_) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      first[j] = shared.first[tx * kWidth + j];
      second[j] = shared.second[tx * kWidth + j];
    }
  }
  __device__ __forceinline__ W gradient(int j, W g, W value) const {
    return input_gradient<T>(own.weight[j], g, first[j], value, own.mean[j], second[j]);
  }
  __device__ __forceinline__ W output(int j, W value, bool relu) const {
    return normalised<T>(value, own.mean[j], own.weight[j], own.bias[j], relu);
  }
};

// The four values of a window of a 2x2 pool become their gradients: the winner's alone has the window's.
// Where no window covers them, at an odd edge, none has.
template <class T, int kWidth>
__device__ __forceinline__ void window_gradients(const GradientMeans<T, kWidth>& means, const NormArgs& args,
                                                 bool there, bool covered, const wide_t<T> (&grad)[kWidth],
                                                 wide_t<T> (&values)[4][kWidth]) {
  using W = wide_t<T>;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    int chosen = -1;
    W g = 0;
    if (covered) {
      W four[4], best;
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = means.output(j, values[i][j], args.relu);
      chosen = winner(four, best);
      g = past_relu<T>(grad[j], best, args.relu);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i][j] = there ? means.gradient(j, i == chosen ? g : W(0), values[i][j]) : W(0);
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
  for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
    const WindowPlace window(index, windows);
    const int first_pixel = window.pixel(args);
    const bool there = mask == nullptr || mask[window.sample];
    const bool covered = window.y < pooled_high && window.x < pooled_wide;
    bool inside[4];
    W values[4][kWidth] = {}, grad[kWidth] = {};
    if (there && covered)
      load<T, kWidth>(
          grad,
          grads + ((static_cast<int64_t>(window.sample) * pooled_high + window.y) * pooled_wide + window.x) *
                      args.channels);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      inside[i] = window.y * 2 + i / 2 < args.height && window.x * 2 + i % 2 < args.width;
      if (inside[i])
        load<T, kWidth>(values[i],
                        x + static_cast<int64_t>(first_pixel + i / 2 * args.width + i % 2) * args.channels);
    }
    window_gradients<T, kWidth>(means, args, there, covered, grad, values);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (inside[i])
        store<T, kWidth>(
            grad_x + static_cast<int64_t>(first_pixel + i / 2 * args.width + i % 2) * args.channels,
            values[i]);
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
        values[j] = there ? means.gradient(j, grad[j], values[j]) : W(0);
      }
      if (grad_residual != nullptr)
        store<T, kWidth>(grad_residual + static_cast<int64_t>(pixel) * args.channels, grad);
      if (args.grad_x.data == nullptr) continue;
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const W g = past_relu<T>(grad[j], means.output(j, values[j], args.relu), args.relu);
        values[j] = there ? means.gradient(j, g, values[j]) : W(0);
      }
    }
    store<T, kWidth>(grad_x + static_cast<int64_t>(pixel) * args.channels, values);
  }
}

// grad_x = weight scale (g - mean of g - z mean of g z); weight scale g where the statistics were given, or
// stood in for those of a single value. grad_residual = g.
template <class T, int kWidth, bool kResidual>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(NormArgs args, Windows windows, Parts parts, int across) {
  using W = wide_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  load_coefficients<T, kWidth>(args, at, shared);
  merge_sums<T, kWidth>(args, parts, at, shared);
  if (!at.valid || (args.grad_x.data == nullptr && (!kResidual || args.grad_residual.data == nullptr)))
    return;
  const Own<W, kWidth> own(shared, at.tx);
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
