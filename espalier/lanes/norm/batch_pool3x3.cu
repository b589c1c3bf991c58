// Batch norm of all lanes with a 3x3 max pool, stride 2, after its ReLU: the norm's output is never written,
// neither forward nor backward. A thread owns a vector of channels and walks over windows forward, over
// patches of 2x2 pixels backward, whose windows are four. See batch.cuh.
#include "espalier/lanes/norm/batch.cuh"

namespace espalier::lanes::batch_norm {
namespace {

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(NormArgs args, Windows windows, Parts parts, int across) {
  using W = wide_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  merge_statistics<T, kWidth>(args, parts, at, shared);
  if (!at.valid) return;
  const Own<T, kWidth> own(shared, at.tx);
  const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;
  const int64_t lane_values = static_cast<int64_t>(args.batch) * high * wide * args.channels;
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  T* const out = static_cast<T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  T* const winner_values =
      static_cast<T*>(args.winner_values.data) + at.lane * args.winner_values.lane_stride + at.channel;
  uint8_t* const winners = args.winners + at.lane * lane_values + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
  const Range range(args.batch * high * wide, at.part, gridDim.x);
  for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
    const WindowPlace window(index, windows);
    W best[kWidth] = {}, value_of_best[kWidth] = {};
    Pack<uint8_t, kWidth> places = {};
    if (mask == nullptr || mask[window.sample]) {
      bool any = false;  // a window's middle is always inside
#pragma unroll
      for (int i = 0; i < 9; ++i) {
        const int row = window.y * 2 - 1 + i / 3, column = window.x * 2 - 1 + i % 3;
        if (row < 0 || row >= args.height || column < 0 || column >= args.width) continue;
        W values[kWidth];
        const int64_t pixel = (static_cast<int64_t>(window.sample) * args.height + row) * args.width + column;
        load<T, kWidth>(values, x + pixel * args.channels);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const W y = own.output(j, values[j], args.relu);
          if (!any || y > best[j] || y != y) {  // the first of equals; a NaN wins, as in torch
            best[j] = y;
            value_of_best[j] = values[j];
            places.value[j] = static_cast<uint8_t>(i);
          }
        }
        any = true;
      }
    }
    const int64_t place = static_cast<int64_t>(index) * args.channels;
    store<T, kWidth>(out + place, best);
    store<T, kWidth>(winner_values + place, value_of_best);
    *reinterpret_cast<Pack<uint8_t, kWidth>*>(winners + place) = places;
  }
}

// As batch_backward.cu's; g adds up over the windows that a pixel won, in order.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(NormArgs args, Windows windows, Parts parts, int across) {
  using W = wide_t<T>;
  const ChannelThread<kWidth> at(args, across);
  if (args.entries != nullptr && args.entries[at.lane] < 0) return;
  __shared__ Coefficients<W> shared;
  load_coefficients<T, kWidth>(args, at, shared);
  merge_sums<T, kWidth>(args, parts, at, shared);
  if (!at.valid || args.grad_x.data == nullptr) return;
  const Own<T, kWidth> own(shared, at.tx);
  const GradientMeans<T, kWidth> means(own, shared, at.tx);
  const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;
  const int64_t lane_values = static_cast<int64_t>(args.batch) * high * wide * args.channels;
  const T* const x = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  const uint8_t* const winners = args.winners + at.lane * lane_values + at.channel;
  T* const grad_x = static_cast<T*>(args.grad_x.data) + at.lane * args.grad_x.lane_stride + at.channel;
  const bool* const mask = args.mask == nullptr ? nullptr : args.mask + at.lane * args.mask_stride;
  const Range range(args.batch * high * wide, at.part, gridDim.x);
  for (int index = range.begin + at.ty; index < range.end; index += at.rows) {
    // A patch begins in the middle of its first window; its odd row and column are shared with the next ones.
    const WindowPlace patch(index, windows);
    const bool there = mask == nullptr || mask[patch.sample];
    W grad[4][kWidth] = {};
    Pack<uint8_t, kWidth> chosen[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_window = there && patch.y + i / 2 < high && patch.x + i % 2 < wide;
      const int64_t place = static_cast<int64_t>(index + i / 2 * wide + i % 2) * args.channels;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) chosen[i].value[j] = 9;  // no place
      if (!is_window) continue;
      chosen[i] = *reinterpret_cast<const Pack<uint8_t, kWidth>*>(winners + place);
      load<T, kWidth>(grad[i], grads + place);
    }
#pragma unroll
    for (int pixel = 0; pixel < 4; ++pixel) {
      const int odd_row = pixel / 2, odd_column = pixel % 2;
      if (patch.y * 2 + odd_row >= args.height || patch.x * 2 + odd_column >= args.width) continue;
      const int64_t place =
          static_cast<int64_t>(patch.pixel(args) + odd_row * args.width + odd_column) * args.channels;
      W values[kWidth];
      load<T, kWidth>(values, x + place);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        W sum = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (i / 2 > odd_row || i % 2 > odd_column) continue;
          const int row = odd_row == 0 ? 1 : (i / 2 == 0 ? 2 : 0);
          const int column = odd_column == 0 ? 1 : (i % 2 == 0 ? 2 : 0);
          if (chosen[i].value[j] == row * 3 + column) sum += grad[i][j];
        }
        const W y = own.output(j, values[j], args.relu);
        const W g = past_relu<T>(sum, y, args.relu);
        values[j] = there ? means.gradient(j, g, values[j]) : W(0);
      }
      store<T, kWidth>(grad_x + place, values);
    }
  }
}

enum class Pass { kApply, kGradient };

template <class T, int kWidth>
cudaError_t launch(Pass pass, const NormArgs& args, Parts parts, cudaStream_t stream) {
  const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2;
  const Launch<kWidth> over(args, args.batch * high * wide, kMostBlocks);
  const auto kernel = pass == Pass::kApply ? apply_kernel<T, kWidth> : gradient_kernel<T, kWidth>;
  kernel<<<over.second_grid, kThreads, 0, stream>>>(args, windows_of(high, wide), parts, over.slice.across);
  return cudaGetLastError();
}

cudaError_t launch(Pass pass, const NormArgs& args, Parts parts, cudaStream_t stream) {
  return for_type(args.type, [&](auto value) {
    using T = decltype(value);
    return args.channels % kVector<T> == 0 ? launch<T, kHalfVector<T>>(pass, args, parts, stream)
                                           : launch<T, 1>(pass, args, parts, stream);
  });
}

}  // namespace

cudaError_t launch_pool3x3_apply(const NormArgs& args, Parts parts, cudaStream_t stream) {
  return launch(Pass::kApply, args, parts, stream);
}

cudaError_t launch_pool3x3_gradient(const NormArgs& args, Parts parts, cudaStream_t stream) {
  return launch(Pass::kGradient, args, parts, stream);
}

}  // namespace espalier::lanes::batch_norm
