// The 3x3 max pool, stride 2, of all lanes. A thread owns a vector of channels of one pixel: of the output
// forward, of the input backward, where it looks up the at most four windows that cover it. Forward keeps the
// winner's place in its window, a byte a value, so backward reads no input. Deterministic: no value is added
// by two threads, and windows are added in order.
#include "espalier/lanes/lane_head_kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;

// The thread's vector of one pixel of [batch, high, wide].
template <int kWidth>
struct Place {
  int lane, sample, y, x, channel;
  bool valid;

  __device__ Place(const PoolArgs& args, int high, int wide) : lane(blockIdx.y) {
    const int vectors = args.channels / kWidth, index = blockIdx.x * kThreads + threadIdx.x;
    valid =
        index < args.batch * high * wide * vectors && (args.entries == nullptr || args.entries[lane] >= 0);
    const int pixel = index / vectors;
    channel = (index - pixel * vectors) * kWidth;
    sample = pixel / (high * wide);
    const int rest = pixel - sample * high * wide;
    y = rest / wide;
    x = rest - y * wide;
  }
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) forward_kernel(PoolArgs args, int high, int wide) {
  using W = wide_t<T>;
  const Place<kWidth> at(args, high, wide);
  if (!at.valid) return;
  const T* const from = static_cast<const T*>(args.x.data) + at.lane * args.x.lane_stride + at.channel;
  W best[kWidth];
  Pack<uint8_t, kWidth> winners;
  bool any = false;  // a window's middle is always inside
#pragma unroll
  for (int i = 0; i < 9; ++i) {
    const int y = at.y * 2 - 1 + i / 3, x = at.x * 2 - 1 + i % 3;
    if (y < 0 || y >= args.height || x < 0 || x >= args.width) continue;
    W values[kWidth];
    load<T, kWidth>(values, from + ((static_cast<int64_t>(at.sample) * args.height + y) * args.width + x) *
                                       args.channels);
#pragma unroll
    for (int j = 0; j < kWidth; ++j)  // the first of equals; a NaN wins, as in torch
      if (!any || values[j] > best[j] || values[j] != values[j]) {
        best[j] = values[j];
        winners.value[j] = static_cast<uint8_t>(i);
      }
    any = true;
  }
  const int64_t pixel = (static_cast<int64_t>(at.sample) * high + at.y) * wide + at.x;
  store<T, kWidth>(
      static_cast<T*>(args.out.data) + at.lane * args.out.lane_stride + pixel * args.channels + at.channel,
      best);
  const int64_t lane_values = static_cast<int64_t>(args.batch) * high * wide * args.channels;
  *reinterpret_cast<Pack<uint8_t, kWidth>*>(args.winners + at.lane * lane_values + pixel * args.channels +
                                            at.channel) = winners;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) backward_kernel(PoolArgs args, int high, int wide) {
  using W = wide_t<T>;
  const Place<kWidth> at(args, args.height, args.width);
  if (!at.valid) return;
  const T* const grads = static_cast<const T*>(args.out.data) + at.lane * args.out.lane_stride + at.channel;
  const int64_t lane_values = static_cast<int64_t>(args.batch) * high * wide * args.channels;
  const uint8_t* const winners = args.winners + at.lane * lane_values + at.channel;
  W sums[kWidth] = {};
  // An odd place lies between two windows, an even one in the middle of one.
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int y = (at.y + 1) / 2 - (1 - i / 2), x = (at.x + 1) / 2 - (1 - i % 2);
    const int row = at.y - (y * 2 - 1), column = at.x - (x * 2 - 1);
    if (y < 0 || y >= high || x < 0 || x >= wide || row > 2 || column > 2 || row < 0 || column < 0) continue;
    const int64_t pixel = ((static_cast<int64_t>(at.sample) * high + y) * wide + x) * args.channels;
    const auto chosen = *reinterpret_cast<const Pack<uint8_t, kWidth>*>(winners + pixel);
    W grad[kWidth];
    load<T, kWidth>(grad, grads + pixel);
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      if (chosen.value[j] == row * 3 + column) sums[j] += grad[j];
  }
  store<T, kWidth>(
      static_cast<T*>(args.of_x.data) + at.lane * args.of_x.lane_stride +
          ((static_cast<int64_t>(at.sample) * args.height + at.y) * args.width + at.x) * args.channels +
          at.channel,
      sums);
}

enum class Pass { kForward, kBackward };

template <class T, int kWidth>
cudaError_t launch(Pass pass, const PoolArgs& args, cudaStream_t stream) {
  const int high = (args.height + 1) / 2, wide = (args.width + 1) / 2, vectors = args.channels / kWidth;
  const auto blocks = [&](int pixels) {
    return dim3((args.batch * pixels * vectors + kThreads - 1) / kThreads, args.lanes);
  };
  if (pass == Pass::kForward) {
    forward_kernel<T, kWidth><<<blocks(high * wide), kThreads, 0, stream>>>(args, high, wide);
  } else {
    backward_kernel<T, kWidth><<<blocks(args.height * args.width), kThreads, 0, stream>>>(args, high, wide);
  }
  return cudaGetLastError();
}

cudaError_t launch(Pass pass, const PoolArgs& args, cudaStream_t stream) {
  return for_type(args.type, [&](auto value) {
    using T = decltype(value);
    constexpr int kVector = 16 / sizeof(T);
    return args.channels % kVector == 0 ? launch<T, kVector>(pass, args, stream)
                                        : launch<T, 1>(pass, args, stream);
  });
}

}  // namespace

cudaError_t launch_max_pool3x3_forward(const PoolArgs& args, cudaStream_t stream) {
  return launch(Pass::kForward, args, stream);
}
cudaError_t launch_max_pool3x3_backward(const PoolArgs& args, cudaStream_t stream) {
  return launch(Pass::kBackward, args, stream);
}

}  // namespace espalier::lanes
