// A thread owns a vector of channels of one folded pixel, or one value of a weight.
#include "espalier/lanes/conv/fold.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 8;        // 2-byte values in 16 bytes
constexpr int kMostChannels = 4;  // that folding is worth it for

int floor_half(int value) {
  return value >= 0 ? value / 2 : -((1 - value) / 2);
}

// blockIdx.y: lane. Bits are moved, not numbers: uint16_t stands for both types.
template <int kChannels>
__global__ void __launch_bounds__(kThreads) fold_images_kernel(ConvFold fold, Stack x, Stack folded) {
  const ConvSizes& sizes = fold.sizes;
  const int vectors = sizes.channels / kVector, index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= sizes.batch * sizes.height * sizes.width * vectors) return;
  const int pixel = index / vectors, channel = (index - pixel * vectors) * kVector;
  const int row_of_all = pixel / sizes.width, column = pixel - row_of_all * sizes.width;
  const int sample = row_of_all / sizes.height, row = row_of_all - sample * sizes.height;
  const auto* const from = static_cast<const uint16_t*>(x.data) + blockIdx.y * x.lane_stride +
                           static_cast<int64_t>(sample) * fold.height * fold.width * kChannels;
  Pack<uint16_t, kVector> pack;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int place = channel + i, part = place / kChannels, c = place - part * kChannels;
    const int y = 2 * (row + fold.first) + part / 2, at = 2 * (column + fold.first) + part % 2;
    const bool inside = part < 4 && y >= 0 && y < fold.height && at >= 0 && at < fold.width;
    pack.value[i] = inside ? from[(y * fold.width + at) * kChannels + c] : uint16_t{0};
  }
  auto* const to = static_cast<uint16_t*>(folded.data) + blockIdx.y * folded.lane_stride;
  *reinterpret_cast<Pack<uint16_t, kVector>*>(to + static_cast<int64_t>(index) * kVector) = pack;
}

// The place in a filter's [R,S,C] that a place in the folded [R',S',C'] stands for; -1: none.
__device__ int place_in_filter(const ConvFold& fold, int place) {
  const int taps = fold.sizes.kernel, tap = place / fold.sizes.channels;
  const int channel = place - tap * fold.sizes.channels, part = channel / fold.channels;
  const int row = 2 * (tap / taps + fold.first) + part / 2 + fold.padding;
  const int column = 2 * (tap % taps + fold.first) + part % 2 + fold.padding;
  if (part >= 4 || row < 0 || row >= fold.kernel || column < 0 || column >= fold.kernel) return -1;
  return (row * fold.kernel + column) * fold.channels + channel - part * fold.channels;
}

// blockIdx.y: lane.
template <class T, bool kBack>
__global__ void __launch_bounds__(kThreads) fold_weight_kernel(ConvFold fold, Stack weight, Stack folded) {
  const ConvSizes& sizes = fold.sizes;
  const int values = sizes.kernel * sizes.kernel * sizes.channels;
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= sizes.filters * values) return;
  const int filter = index / values, place = place_in_filter(fold, index - filter * values);
  T* const whole = static_cast<T*>(weight.data) + blockIdx.y * weight.lane_stride +
                   static_cast<int64_t>(filter) * fold.kernel * fold.kernel * fold.channels;
  T* const part = static_cast<T*>(folded.data) + blockIdx.y * folded.lane_stride + index;
  if constexpr (kBack) {
    if (place >= 0) whole[place] = *part;
  } else {
    *part = place >= 0 ? whole[place] : narrow<T>(wide_t<T>(0));
  }
}

template <bool kBack>
cudaError_t launch_weight(const ConvFold& fold, KernelType type, Stack weight, Stack folded,
                          cudaStream_t stream) {
  const ConvSizes& sizes = fold.sizes;
  const int values = sizes.filters * sizes.kernel * sizes.kernel * sizes.channels;
  const dim3 blocks((values + kThreads - 1) / kThreads, sizes.lanes);
  return for_type(type, [&](auto value) {
    fold_weight_kernel<decltype(value), kBack><<<blocks, kThreads, 0, stream>>>(fold, weight, folded);
    return cudaGetLastError();
  });
}

}  // namespace

bool takes_fold(const ConvSizes& sizes) {
  if (sizes.stride != 2 || sizes.kernel < 2 || sizes.channels > kMostChannels) return false;
  const ConvSizes folded = fold_of(sizes).sizes;  // places are 32-bit
  const int64_t values = int64_t{folded.batch} * folded.height * folded.width * folded.channels;
  return takes_vector(folded) && values < int64_t{1} << 31;
}

ConvFold fold_of(const ConvSizes& sizes) {
  const int first = floor_half(-sizes.padding), last = floor_half(sizes.kernel - 1 - sizes.padding);
  ConvFold fold{.sizes = sizes,
                .first = first,
                .kernel = sizes.kernel,
                .padding = sizes.padding,
                .channels = sizes.channels,
                .height = sizes.height,
                .width = sizes.width};
  fold.sizes.kernel = last - first + 1;
  fold.sizes.channels = (4 * sizes.channels + kVector - 1) / kVector * kVector;
  fold.sizes.height = sizes.out_height + fold.sizes.kernel - 1;
  fold.sizes.width = sizes.out_width + fold.sizes.kernel - 1;
  fold.sizes.stride = 1;
  fold.sizes.padding = 0;
  return fold;
}

cudaError_t launch_fold_images(const ConvFold& fold, Stack x, Stack folded, cudaStream_t stream) {
  const ConvSizes& sizes = fold.sizes;
  const int vectors = sizes.batch * sizes.height * sizes.width * (sizes.channels / kVector);
  const dim3 blocks((vectors + kThreads - 1) / kThreads, sizes.lanes);
  switch (fold.channels) {
    case 1:
      fold_images_kernel<1><<<blocks, kThreads, 0, stream>>>(fold, x, folded);
      break;
    case 2:
      fold_images_kernel<2><<<blocks, kThreads, 0, stream>>>(fold, x, folded);
      break;
    case 3:
      fold_images_kernel<3><<<blocks, kThreads, 0, stream>>>(fold, x, folded);
      break;
    default:
      fold_images_kernel<4><<<blocks, kThreads, 0, stream>>>(fold, x, folded);
  }
  return cudaGetLastError();
}

cudaError_t launch_fold_weight(const ConvFold& fold, KernelType type, Stack weight, Stack folded,
                               cudaStream_t stream) {
  return launch_weight<false>(fold, type, weight, folded, stream);
}

cudaError_t launch_unfold_weight(const ConvFold& fold, KernelType type, Stack folded, Stack weight,
                                 cudaStream_t stream) {
  return launch_weight<true>(fold, type, weight, folded, stream);
}

}  // namespace espalier::lanes
