// Forward, one lane: out[b, y, x, c] = sum over taps (r, s) of in[b, y - padding + r, x - padding + s, c]
// w[c, r, s]. A thread owns a vector of channels of kStrip outputs, one below the other: a value that is read
// serves up to three of them. blockIdx: threads over (sample, strip, column, vector of channels), lane.
//
// Weight gradient: grad_weight[c, r, s] = sum over outputs of grad[b, y, x, c] in[b, y - padding + r,
// x - padding + s, c]. A thread walks down columns of the output with a window of nine values that moves
// along. blockIdx: vectors of channels, part of the columns, lane.
#include <algorithm>

#include "espalier/lanes/conv/depthwise/kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kTaps = 9;
constexpr int kStrip = 4;

// What the product kernel reads and writes: x and out, or the other way around.
struct DepthwiseProduct {
  int32_t batch, channels;
  int32_t height, width;          // what is read
  int32_t out_height, out_width;  // what is written
  int32_t padding;
  bool turned;  // filters that are turned around
  Stack in, out, weight, bias;
  const int64_t* entries;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) product_kernel(DepthwiseProduct args) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  extern __shared__ __align__(16) uint8_t raw[];
  W* const filters = reinterpret_cast<W*>(raw);  // [9][C]
  const int lane = blockIdx.y, channels = args.channels;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  const T* const weight = static_cast<const T*>(args.weight.data) + lane * args.weight.lane_stride;
  for (int i = threadIdx.x; i < channels * kTaps; i += kThreads) {
    const int channel = i / kTaps, tap = i - channel * kTaps;
    filters[(args.turned ? kTaps - 1 - tap : tap) * channels + channel] = widen<T>(weight[i]);
  }
  __syncthreads();

  const int vectors = channels / kWidth, strips = (args.out_height + kStrip - 1) / kStrip;
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= args.batch * strips * args.out_width * vectors) return;
  const int column = index / vectors, channel = (index - column * vectors) * kWidth;
  const int strip = column / args.out_width, x = column - strip * args.out_width;
  const int sample = strip / strips, first = (strip - sample * strips) * kStrip;
  const T* const image = static_cast<const T*>(args.in.data) + lane * args.in.lane_stride +
                         static_cast<int64_t>(sample) * args.height * args.width * channels + channel;
  S sums[kStrip][kWidth] = {};
#pragma unroll
  for (int s = 0; s < 3; ++s) {
    const int from_x = x - args.padding + s;
    if (from_x < 0 || from_x >= args.width) continue;
    W taps[3][kWidth];
#pragma unroll
    for (int r = 0; r < 3; ++r)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) taps[r][j] = filters[(r * 3 + s) * channels + channel + j];
#pragma unroll
    for (int i = 0; i < kStrip + 2; ++i) {
      const int from_y = first - args.padding + i;
      if (from_y < 0 || from_y >= args.height) continue;
      W values[kWidth];
      load<T, kWidth>(values, image + static_cast<int64_t>(from_y * args.width + from_x) * channels);
#pragma unroll
      for (int r = 0; r < 3; ++r)
        if (i - r >= 0 && i - r < kStrip)
#pragma unroll
          for (int j = 0; j < kWidth; ++j)
            sums[i - r][j] += static_cast<S>(values[j]) * static_cast<S>(taps[r][j]);
    }
  }
  const W* const bias = args.bias.data == nullptr
                            ? nullptr
                            : static_cast<const W*>(args.bias.data) + lane * args.bias.lane_stride + channel;
  T* const to = static_cast<T*>(args.out.data) + lane * args.out.lane_stride +
                static_cast<int64_t>(sample) * args.out_height * args.out_width * channels + channel;
#pragma unroll
  for (int i = 0; i < kStrip; ++i) {
    if (first + i >= args.out_height) break;
    W values[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      values[j] = static_cast<W>(bias == nullptr ? sums[i][j] : sums[i][j] + static_cast<S>(bias[j]));
    store<T, kWidth>(to + static_cast<int64_t>((first + i) * args.out_width + x) * channels, values);
  }
}

cudaError_t launch_product(const DepthwiseProduct& args, KernelType type, int lanes, cudaStream_t stream) {
  return for_type(type, [&](auto value) {
    using T = decltype(value);
    constexpr int kVector = 16 / sizeof(T);
    const auto launch = [&](auto width, auto kernel) {
      const int strips = (args.out_height + kStrip - 1) / kStrip;
      const int items = args.batch * strips * args.out_width * (args.channels / width);
      const size_t bytes = sizeof(wide_t<T>) * kTaps * args.channels;
      kernel<<<dim3((items + kThreads - 1) / kThreads, lanes), kThreads, bytes, stream>>>(args);
      return cudaGetLastError();
    };
    return args.channels % kVector == 0 ? launch(kVector, product_kernel<T, kVector>)
                                        : launch(1, product_kernel<T, 1>);
  });
}

// How the weight gradient of a lane is shared out.
constexpr int kMostAcross = 16;     // threads side by side over vectors of channels; a power of two
constexpr int kPixelsAThread = 16;  // at least, where there is more than one part
constexpr int kMostParts = 256;

struct Share {
  int width;   // channels of a vector: few, since a thread has nine sums and nine values for each
  int across;  // threads over vectors
  int chunks;  // blocks over vectors
  int parts;   // blocks over columns
};

Share share_of(const DepthwiseArgs& args) {
  const int most = args.type == KernelType::kF64 ? 2 : 4;
  Share share{};
  share.width = args.channels % most == 0 ? most : 1;
  const int vectors = args.channels / share.width;
  share.across = 1;
  while (share.across < kMostAcross && share.across * 2 <= vectors) share.across *= 2;
  share.chunks = (vectors + share.across - 1) / share.across;
  const int64_t pixels = static_cast<int64_t>(args.batch) * args.out_height * args.out_width;
  share.parts = static_cast<int>(
      std::clamp<int64_t>(pixels / (kThreads / share.across * kPixelsAThread), 1, kMostParts));
  return share;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) weight_kernel(DepthwiseArgs args, Share share) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  constexpr int kSums = kTaps * kWidth;
  __shared__ S shared[kThreads / kWarp][kMostAcross * kSums];
  const int lane = blockIdx.z, part = blockIdx.y, channels = args.channels;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  const int tx = threadIdx.x % share.across, ty = threadIdx.x / share.across;
  const int vectors = channels / kWidth, first_vector = blockIdx.x * share.across;
  const int channel = (first_vector + tx) * kWidth, rows = kThreads / share.across;
  const T* const images = static_cast<const T*>(args.x.data) + lane * args.x.lane_stride + channel;
  const T* const grads = static_cast<const T*>(args.out.data) + lane * args.out.lane_stride + channel;

  S sums[kTaps][kWidth] = {};
  const int columns = first_vector + tx < vectors ? args.batch * args.out_width : 0;
  for (int column = part * rows + ty; column < columns; column += share.parts * rows) {
    const int sample = column / args.out_width, x = column - sample * args.out_width;
    const T* const image = images + static_cast<int64_t>(sample) * args.height * args.width * channels;
    const T* const grad =
        grads + (static_cast<int64_t>(sample) * args.out_height * args.out_width + x) * channels;
    W window[3][3][kWidth];
    const auto read_row = [&](W(&row)[3][kWidth], int y) {
#pragma unroll
      for (int s = 0; s < 3; ++s) {
        const int from_x = x - args.padding + s;
        if (y >= 0 && y < args.height && from_x >= 0 && from_x < args.width) {
          load<T, kWidth>(row[s], image + static_cast<int64_t>(y * args.width + from_x) * channels);
        } else {
#pragma unroll
          for (int j = 0; j < kWidth; ++j) row[s][j] = W(0);
        }
      }
    };
    read_row(window[1], -args.padding);
    read_row(window[2], 1 - args.padding);
    for (int y = 0; y < args.out_height; ++y) {
#pragma unroll
      for (int s = 0; s < 3; ++s)
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          window[0][s][j] = window[1][s][j];
          window[1][s][j] = window[2][s][j];
        }
      read_row(window[2], y + 2 - args.padding);
      W own[kWidth];
      load<T, kWidth>(own, grad + static_cast<int64_t>(y) * args.out_width * channels);
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap)
#pragma unroll
        for (int j = 0; j < kWidth; ++j)
          sums[tap][j] += static_cast<S>(own[j]) * static_cast<S>(window[tap / 3][tap % 3][j]);
    }
  }

  // A warp's threads of one vector, then the warps in their order.
  for (int offset = kWarp / 2; offset >= share.across; offset /= 2)
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[tap][j] += __shfl_down_sync(~0u, sums[tap][j], offset);
  if (threadIdx.x % kWarp < share.across)
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        shared[threadIdx.x / kWarp][tx * kSums + j * kTaps + tap] = sums[tap][j];
  __syncthreads();
  // [lane][part][C][9]: what stands side by side here does there.
  S* const to = static_cast<S*>(args.partial) +
                (static_cast<int64_t>(lane) * share.parts + part) * channels * kTaps + first_vector * kSums;
  const int values = min(share.across, vectors - first_vector) * kSums;
  for (int i = threadIdx.x; i < values; i += kThreads) {
    S sum = shared[0][i];
    for (int warp = 1; warp < kThreads / kWarp; ++warp) sum += shared[warp][i];
    to[i] = sum;
  }
}

// kSumRows threads a weight: thread r adds the parts r, r + kSumRows, ... in their order, the first of them
// the rows in theirs. blockIdx.y: lane.
constexpr int kSumRows = 8;
constexpr int kSumWeights = kThreads / kSumRows;

template <class T>
__global__ void __launch_bounds__(kThreads) add_parts_kernel(DepthwiseArgs args, int parts) {
  using S = sum_t<T>;
  __shared__ S sums[kSumRows][kSumWeights];
  const int lane = blockIdx.y, column = threadIdx.x % kSumWeights, row = threadIdx.x / kSumWeights;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  const int value = blockIdx.x * kSumWeights + column, values = args.channels * kTaps;
  S sum = 0;
  if (value < values) {
    const S* const from =
        static_cast<const S*>(args.partial) + static_cast<int64_t>(lane) * parts * values + value;
#pragma unroll 8
    for (int part = row; part < parts; part += kSumRows) sum += from[static_cast<int64_t>(part) * values];
  }
  sums[row][column] = sum;
  __syncthreads();
  if (row > 0 || value >= values) return;
#pragma unroll
  for (int other = 1; other < kSumRows; ++other) sum += sums[other][column];
  static_cast<wide_t<T>*>(args.grad_weight.data)[lane * args.grad_weight.lane_stride + value] =
      static_cast<wide_t<T>>(sum);
}

}  // namespace

cudaError_t launch_depthwise_forward(const DepthwiseArgs& args, cudaStream_t stream) {
  const DepthwiseProduct product{args.batch,     args.channels, args.height, args.width, args.out_height,
                                 args.out_width, args.padding,  false,       args.x,     args.out,
                                 args.weight,    args.bias,     args.entries};
  return launch_product(product, args.type, args.lanes, stream);
}

cudaError_t launch_depthwise_backward_data(const DepthwiseArgs& args, cudaStream_t stream) {
  const DepthwiseProduct product{
      args.batch, args.channels, args.out_height, args.out_width, args.height, args.width,  2 - args.padding,
      true,       args.out,      args.x,          args.weight,    Stack{},     args.entries};
  return launch_product(product, args.type, args.lanes, stream);
}

cudaError_t launch_depthwise_backward_weight(const DepthwiseArgs& args, cudaStream_t stream) {
  const Share share = share_of(args);
  return for_type(args.type, [&](auto value) {
    using T = decltype(value);
    constexpr int kVector = sizeof(T) == 8 ? 2 : 4;
    const dim3 grid(share.chunks, share.parts, args.lanes);
    if (share.width == 1)
      weight_kernel<T, 1><<<grid, kThreads, 0, stream>>>(args, share);
    else
      weight_kernel<T, kVector><<<grid, kThreads, 0, stream>>>(args, share);
    if (const cudaError_t error = cudaGetLastError()) return error;
    const int values = args.channels * kTaps;
    add_parts_kernel<T><<<dim3((values + kSumWeights - 1) / kSumWeights, args.lanes), kThreads, 0, stream>>>(
        args, share.parts);
    return cudaGetLastError();
  });
}

int64_t depthwise_partials(const DepthwiseArgs& args) {
  return static_cast<int64_t>(args.lanes) * share_of(args).parts * args.channels * kTaps;
}

}  // namespace espalier::lanes
