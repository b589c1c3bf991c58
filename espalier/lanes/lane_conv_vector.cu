// Convolutions whose channels and filters are multiples of 8, as matrix products that are never laid out.
//
// Forward, one lane: out[m, n] = sum over k of a[m, k] w[n, k], with m an output pixel (sample, row, column),
// n a filter and k = (tap, channel). Data gradient: the same with m an input pixel, n a channel,
// k = (tap, filter), the output's gradient read at the places that the taps came from, and w read as
// w[filter, tap, channel]. Weight gradient: of_weight[n, j] = sum over pixels m of grad[m, n] a[m, j].
//
// Thread mapping: a block does a tile of kRows pixels (or a tile of filters x columns over a part of the
// pixels) of one lane (blockIdx.z); a warp 32 of the rows. Tiles come in by 16-byte asynchronous copies,
// several stages ahead, zeros where a tap lies outside; eight channels of one tap are one copy.
// Deterministic: a sum's order depends on the lane's shape alone.
#include <algorithm>

#include "espalier/core/divisor.h"
#include "espalier/lanes/lane_conv_kernel.h"
#include "espalier/lanes/mma.cuh"

namespace espalier::lanes {
namespace {

constexpr int kWarp = 32;
constexpr int kChunk = 8;  // values of 16 bytes

// How a block finds the values that a tap reads.
struct Window {
  int32_t height, width;    // of the tensor that is read
  Divisor a_row, a_sample;  // pixels that are gone over
  int32_t kernel, stride, padding;
  bool of_data;  // the data gradient: taps lead from the input to the outputs that read it
};

// The place that tap (r, s) reads for a pixel at (y, x); negative: outside.
__device__ inline int place_of(const Window& window, int y, int x, int r, int s) {
  int row, column;
  if (window.of_data) {
    row = y + window.padding - r;
    column = x + window.padding - s;
    if (window.stride > 1) {
      if (row % window.stride != 0 || column % window.stride != 0) return -1;
      row /= window.stride;
      column /= window.stride;
    }
  } else {
    row = y * window.stride - window.padding + r;
    column = x * window.stride - window.padding + s;
  }
  if (row < 0 || row >= window.height || column < 0 || column >= window.width) return -1;
  return row * window.width + column;
}

// One place in k = (tap, channel), moved on chunk by chunk without a division.
struct TapCursor {
  int r, s, channel;

  __device__ TapCursor(int k, int channels, int kernel) {
    const int tap = k / channels;
    channel = k - tap * channels;
    r = tap / kernel;
    s = tap - r * kernel;
  }
  __device__ void advance(int by, int channels, int kernel) {
    channel += by;
    while (channel >= channels) {
      channel -= channels;
      if (++s == kernel) {
        s = 0;
        ++r;
      }
    }
  }
};

constexpr int kRows = 128;  // pixels a block
constexpr int kDepth = 32;  // of k, a stage
constexpr int kStages = 4;
constexpr int kDepthChunks = kDepth / kChunk;
constexpr int kPixelPitch = kDepthChunks + 1;  // chunks a row of a tile of pixels: odd

// A tile of the weights: [n][k] rows forward, [k][n] rows for the data gradient.
template <int kColumns, bool kOfData>
struct WeightTile {
  static constexpr int kTileRows = kOfData ? kDepth : kColumns;
  static constexpr int kRowChunks = kOfData ? kColumns / kChunk : kDepthChunks;
  static constexpr int kPitch = kRowChunks | 1;
  static constexpr int kBytes = kTileRows * kPitch * 16;
};

template <int kColumns, bool kOfData>
constexpr int product_bytes() {
  const int stages = kStages * (kRows * kPixelPitch * 16 + WeightTile<kColumns, kOfData>::kBytes);
  const int result = kRows * (kColumns * 2 + 16);
  return stages > result ? stages : result;
}

template <class T, int kColumns, int kWarpsN, bool kOfData>
__global__ void __launch_bounds__(4 * kWarpsN * kWarp)
    product_kernel(ConvSizes sizes, Window window, Stack in, Stack weight, Stack out, const float* bias,
                   int64_t bias_stride, const int64_t* entries) {
  constexpr int kThreads = 4 * kWarpsN * kWarp;
  constexpr int kWarpColumns = kColumns / kWarpsN;
  constexpr int kTiles = kWarpColumns / 8;
  using Weights = WeightTile<kColumns, kOfData>;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.z;
  if (entries != nullptr && entries[lane] < 0) return;

  const int channels = kOfData ? sizes.filters : sizes.channels;    // of what is read
  const int columns = kOfData ? sizes.channels : sizes.filters;     // of what is written
  const int rows_high = kOfData ? sizes.height : sizes.out_height;  // pixels that are written
  const int rows_wide = kOfData ? sizes.width : sizes.out_width;
  const int pixels = sizes.batch * rows_high * rows_wide;
  const int depth = sizes.kernel * sizes.kernel * channels;
  const int first_row = blockIdx.x * kRows, first_column = blockIdx.y * kColumns;
  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  const T* const filters = static_cast<const T*>(weight.data) + lane * weight.lane_stride;
  const int tid = threadIdx.x;

  // A thread copies the same chunk of several rows of pixels.
  constexpr int kRowsAtOnce = kThreads / kDepthChunks;
  constexpr int kCopies = kRows / kRowsAtOnce;
  const int copy_chunk_index = tid % kDepthChunks, copy_row = tid / kDepthChunks;
  int pixel_y[kCopies], pixel_x[kCopies];
  const T* image[kCopies];
#pragma unroll
  for (int i = 0; i < kCopies; ++i) {
    const int pixel = first_row + copy_row + i * kRowsAtOnce;
    const int sample = static_cast<int>(window.a_sample.quotient(static_cast<uint32_t>(pixel)));
    const int rest = pixel - sample * rows_high * rows_wide;
    const int row = static_cast<int>(window.a_row.quotient(static_cast<uint32_t>(rest)));
    pixel_y[i] = pixel < pixels ? row : -(1 << 20);  // far outside: nothing is read
    pixel_x[i] = rest - row * rows_wide;
    image[i] =
        read + static_cast<int64_t>(pixel < pixels ? sample : 0) * window.height * window.width * channels;
  }
  TapCursor cursor(copy_chunk_index * kChunk, channels, sizes.kernel);
  const int taps = sizes.kernel * sizes.kernel;

  const auto pixel_tile = [&](int stage) {
    return shared + stage * (kRows * kPixelPitch * 16 + Weights::kBytes);
  };
  const auto weight_tile = [&](int stage) { return pixel_tile(stage) + kRows * kPixelPitch * 16; };
  const auto fetch = [&](int step) {
    uint8_t* const to_pixels = pixel_tile(step % kStages);
    uint8_t* const to_weights = weight_tile(step % kStages);
    const bool in_depth = step * kDepth + copy_chunk_index * kChunk < depth;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int place = in_depth ? place_of(window, pixel_y[i], pixel_x[i], cursor.r, cursor.s) : -1;
      const T* from = image[i] + (place < 0 ? 0 : static_cast<int64_t>(place) * channels + cursor.channel);
      copy_chunk(to_pixels + ((copy_row + i * kRowsAtOnce) * kPixelPitch + copy_chunk_index) * 16, from,
                 place >= 0);
    }
    cursor.advance(kDepth, channels, sizes.kernel);
    for (int c = tid; c < Weights::kTileRows * Weights::kRowChunks; c += kThreads) {
      const int row = c / Weights::kRowChunks, chunk = c - row * Weights::kRowChunks;
      int64_t from = 0;
      bool valid;
      if (kOfData) {  // row: k = (tap, filter); chunk: channels
        const int k = step * kDepth + row, column = first_column + chunk * kChunk;
        const int tap = k / channels, filter = k - tap * channels;
        valid = k < depth && column < columns;
        if (valid) from = (static_cast<int64_t>(filter) * taps + tap) * columns + column;
      } else {  // row: filter; chunk: k
        const int k = step * kDepth + chunk * kChunk, column = first_column + row;
        valid = k < depth && column < columns;
        if (valid) from = static_cast<int64_t>(column) * depth + k;
      }
      copy_chunk(to_weights + (row * Weights::kPitch + chunk) * 16, filters + from, valid);
    }
  };

  const int warp = tid / kWarp, in_warp = tid % kWarp;
  const int warp_row = (warp % 4) * 32, warp_column = (warp / 4) * kWarpColumns;
  float sums[2][kTiles][4] = {};
  const int steps = (depth + kDepth - 1) / kDepth;
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) fetch(step);
    commit_copies();
  }
  for (int step = 0; step < steps; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    if (step + kStages - 1 < steps) fetch(step + kStages - 1);
    commit_copies();
    const uint32_t from_pixels = shared_address(pixel_tile(step % kStages));
    const uint32_t from_weights = shared_address(weight_tile(step % kStages));
#pragma unroll
    for (int part = 0; part < kDepth / 16; ++part) {
      if (step * kDepth + part * 16 >= depth) break;
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m)
        load_matrices(
            a[m],
            from_pixels + ((warp_row + m * 16 + in_warp % 16) * kPixelPitch + part * 2 + in_warp / 16) * 16);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        const int column = warp_column + n * 8;
        if (kTiles == 1) {
          uint32_t b[2];
          if (kOfData)
            load_two_matrices_transposed(
                b, from_weights + ((part * 16 + in_warp % 16) * Weights::kPitch + column / 8) * 16);
          else
            load_two_matrices(
                b,
                from_weights + ((column + in_warp % 8) * Weights::kPitch + part * 2 + in_warp / 8 % 2) * 16);
#pragma unroll
          for (int m = 0; m < 2; ++m) multiply_add<T>(sums[m][n], a[m], b[0], b[1]);
        } else {
          uint32_t b[4];
          if (kOfData)
            load_matrices_transposed(
                b, from_weights +
                       ((part * 16 + in_warp % 16) * Weights::kPitch + column / 8 + in_warp / 16) * 16);
          else
            load_matrices(b, from_weights + ((column + in_warp % 8 + in_warp / 16 * 8) * Weights::kPitch +
                                             part * 2 + in_warp / 8 % 2) *
                                                16);
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            multiply_add<T>(sums[m][n], a[m], b[0], b[1]);
            multiply_add<T>(sums[m][n + 1], a[m], b[2], b[3]);
          }
        }
      }
    }
  }
  wait_copies<0>();
  __syncthreads();

  // Through shared memory, so that rows are written 16 bytes at a time.
  constexpr int kResultPitch = kColumns * 2 + 16;
  const int group = in_warp / 4, pair = in_warp % 4 * 2;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + m * 16 + group + half * 8, column = warp_column + n * 8 + pair;
        float low = sums[m][n][half * 2], high = sums[m][n][half * 2 + 1];
        if (bias != nullptr && first_column + column < columns) {
          const float* const own = bias + lane * bias_stride + first_column + column;
          low += own[0];
          high += own[1];
        }
        *reinterpret_cast<uint32_t*>(shared + row * kResultPitch + column * 2) = pack<T>(low, high);
      }
  __syncthreads();
  T* const written = static_cast<T*>(out.data) + lane * out.lane_stride;
  constexpr int kResultChunks = kColumns / kChunk;
  for (int c = tid; c < kRows * kResultChunks; c += kThreads) {
    const int row = c / kResultChunks, chunk = c - row * kResultChunks;
    const int pixel = first_row + row, column = first_column + chunk * kChunk;
    if (pixel < pixels && column < columns)
      *reinterpret_cast<uint4*>(written + static_cast<int64_t>(pixel) * columns + column) =
          *reinterpret_cast<const uint4*>(shared + row * kResultPitch + chunk * 16);
  }
}

template <class T, int kColumns, int kWarpsN, bool kOfData>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const auto kernel = product_kernel<T, kColumns, kWarpsN, kOfData>;
  constexpr int kBytes = product_bytes<kColumns, kOfData>();
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes))
    return error;
  const auto count = [](int size) { return static_cast<uint32_t>(size); };
  const int high = kOfData ? sizes.height : sizes.out_height, wide = kOfData ? sizes.width : sizes.out_width;
  const Window window{kOfData ? sizes.out_height : sizes.height,
                      kOfData ? sizes.out_width : sizes.width,
                      Divisor(count(wide)),
                      Divisor(count(high * wide)),
                      sizes.kernel,
                      sizes.stride,
                      sizes.padding,
                      kOfData};
  const int pixels =
      sizes.batch * (kOfData ? sizes.height * sizes.width : sizes.out_height * sizes.out_width);
  const int columns = kOfData ? sizes.channels : sizes.filters;
  const dim3 grid((pixels + kRows - 1) / kRows, (columns + kColumns - 1) / kColumns, sizes.lanes);
  kernel<<<grid, 4 * kWarpsN * kWarp, kBytes, stream>>>(sizes, window, kOfData ? args.out : args.x,
                                                        args.weight, kOfData ? args.x : args.out, args.bias,
                                                        args.bias_stride, args.entries);
  return cudaGetLastError();
}

template <class T, bool kOfData>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const int columns = kOfData ? args.sizes.channels : args.sizes.filters;
  if (columns <= 8) return launch_product<T, 8, 1, kOfData>(args, stream);
  if (columns <= 16) return launch_product<T, 16, 1, kOfData>(args, stream);
  if (columns <= 32) return launch_product<T, 32, 1, kOfData>(args, stream);
  if (columns <= 64) return launch_product<T, 64, 1, kOfData>(args, stream);
  return launch_product<T, 128, 2, kOfData>(args, stream);
}

// The weight gradient. A block: a tile of filters x columns of (tap, channel), over a part of the lane's
// pixels. kWarpsK warps share the pixels of a stage out and add up at the end.
template <int kM, int kN, int kWarpsM, int kWarpsN, int kWarpsK>
struct WeightShape {
  static constexpr int kFilters = kM * 16 * kWarpsM;
  static constexpr int kColumns = kN * 8 * kWarpsN;
  static constexpr int kThreads = kWarpsM * kWarpsN * kWarpsK * kWarp;
  static constexpr int kPixels = kWarpsK == 1 ? 32 : 16 * kWarpsK;  // a stage
  static constexpr int kGradPitch = (kFilters / 8) | 1;
  static constexpr int kReadPitch = (kColumns / 8) | 1;
  static constexpr int kStageBytes = kPixels * (kGradPitch + kReadPitch) * 16;
  static constexpr int kStages = 3;
  static constexpr int kTapBytes = kColumns / 8 * 16;  // where each chunk of columns reads
  static constexpr int kSumBytes = kWarpsK == 1 ? 0 : kThreads * kM * kN * 4 * 4;
  static constexpr int kBytes =
      kTapBytes + (kStages * kStageBytes > kSumBytes ? kStages * kStageBytes : kSumBytes);
  // Threads that copy one pixel's chunks; the others copy other pixels'.
  static constexpr int kCopiers = kThreads / kPixels > 4 ? kThreads / kPixels : 4;
  static constexpr int kPixelsAtOnce = kThreads / kCopiers;
  static constexpr int kPasses = kPixels / kPixelsAtOnce;
};

// A pixel of the output, moved on without a division.
struct PixelCursor {
  int sample, y, x;

  __device__ PixelCursor(int pixel, int height, int width) {
    sample = pixel / (height * width);
    const int rest = pixel - sample * height * width;
    y = rest / width;
    x = rest - y * width;
  }
  __device__ void advance(int by, int height, int width) {
    x += by;
    while (x >= width) {
      x -= width;
      if (++y == height) {
        y = 0;
        ++sample;
      }
    }
  }
};

template <class T, int kM, int kN, int kWarpsM, int kWarpsN, int kWarpsK>
__global__ void __launch_bounds__(kWarpsM* kWarpsN* kWarpsK* kWarp)
    weight_kernel(ConvSizes sizes, Window window, Stack in, Stack grad, float* partial, int parts,
                  int pixels_a_part, int column_tiles, const int64_t* entries) {
  using Shape = WeightShape<kM, kN, kWarpsM, kWarpsN, kWarpsK>;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.z, part = blockIdx.y;
  if (entries != nullptr && entries[lane] < 0) return;
  const int first_column = blockIdx.x % column_tiles * Shape::kColumns;
  const int first_filter = blockIdx.x / column_tiles * Shape::kFilters;
  const int channels = sizes.channels, depth = sizes.kernel * sizes.kernel * channels;
  const int out_pixels = sizes.out_height * sizes.out_width, pixels = sizes.batch * out_pixels;
  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  const T* const grads = static_cast<const T*>(grad.data) + lane * grad.lane_stride;
  const int tid = threadIdx.x;
  const int begin = part * pixels_a_part, end = min(pixels, begin + pixels_a_part);

  int4* const taps = reinterpret_cast<int4*>(shared);  // [columns / 8]: r, s, channel, whether it is one
  for (int chunk = tid; chunk < Shape::kColumns / kChunk; chunk += Shape::kThreads) {
    const int column = first_column + chunk * kChunk;
    const TapCursor tap(column, channels, sizes.kernel);
    taps[chunk] = make_int4(tap.r, tap.s, tap.channel, column < depth);
  }
  __syncthreads();

  const auto grad_tile = [&](int stage) { return shared + Shape::kTapBytes + stage * Shape::kStageBytes; };
  const auto read_tile = [&](int stage) {
    return grad_tile(stage) + Shape::kPixels * Shape::kGradPitch * 16;
  };
  const int copier = tid % Shape::kCopiers, copy_row = tid / Shape::kCopiers;
  PixelCursor cursor(begin + copy_row, sizes.out_height, sizes.out_width);
  const int image_values = window.height * window.width * channels;
  const auto fetch = [&](int step) {
    uint8_t* const to_grads = grad_tile(step % Shape::kStages);
    uint8_t* const to_read = read_tile(step % Shape::kStages);
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      const int row = copy_row + pass * Shape::kPixelsAtOnce;
      const int pixel = begin + step * Shape::kPixels + row;
      const bool there = pixel < end;
      const T* const own_grads =
          grads + static_cast<int64_t>(there ? pixel : 0) * sizes.filters + first_filter;
      for (int chunk = copier; chunk < Shape::kFilters / kChunk; chunk += Shape::kCopiers) {
        const bool valid = there && first_filter + chunk * kChunk < sizes.filters;
        copy_chunk(to_grads + (row * Shape::kGradPitch + chunk) * 16,
                   valid ? own_grads + chunk * kChunk : grads, valid);
      }
      const T* const image = read + static_cast<int64_t>(there ? cursor.sample : 0) * image_values;
      for (int chunk = copier; chunk < Shape::kColumns / kChunk; chunk += Shape::kCopiers) {
        const int4 tap = taps[chunk];
        const int place = there && tap.w ? place_of(window, cursor.y, cursor.x, tap.x, tap.y) : -1;
        copy_chunk(to_read + (row * Shape::kReadPitch + chunk) * 16,
                   image + (place < 0 ? 0 : place * channels + tap.z), place >= 0);
      }
      cursor.advance(Shape::kPixelsAtOnce, sizes.out_height, sizes.out_width);
    }
  };

  const int warp = tid / kWarp, in_warp = tid % kWarp;
  const int warp_m = warp % kWarpsM, warp_n = warp / kWarpsM % kWarpsN, warp_k = warp / (kWarpsM * kWarpsN);
  float sums[kM][kN][4] = {};
  const int steps = end > begin ? (end - begin + Shape::kPixels - 1) / Shape::kPixels : 0;
#pragma unroll
  for (int step = 0; step < Shape::kStages - 1; ++step) {
    if (step < steps) fetch(step);
    commit_copies();
  }
  for (int step = 0; step < steps; ++step) {
    wait_copies<Shape::kStages - 2>();
    __syncthreads();
    if (step + Shape::kStages - 1 < steps) fetch(step + Shape::kStages - 1);
    commit_copies();
    const uint32_t from_grads = shared_address(grad_tile(step % Shape::kStages));
    const uint32_t from_read = shared_address(read_tile(step % Shape::kStages));
#pragma unroll
    for (int slice = 0; slice < Shape::kPixels / 16 / kWarpsK; ++slice) {
      const int pixel = (warp_k + slice * kWarpsK) * 16;
      uint32_t a[kM][4];
#pragma unroll
      for (int m = 0; m < kM; ++m)  // matrices: filters 0-7 and 8-15 of pixels 0-7, then of pixels 8-15
        load_matrices_transposed(a[m],
                                 from_grads + ((pixel + in_warp % 8 + in_warp / 16 * 8) * Shape::kGradPitch +
                                               (warp_m * kM + m) * 2 + in_warp / 8 % 2) *
                                                  16);
#pragma unroll
      for (int n = 0; n + 1 < kN; n += 2) {
        uint32_t b[4];
        load_matrices_transposed(
            b,
            from_read + ((pixel + in_warp % 16) * Shape::kReadPitch + warp_n * kN + n + in_warp / 16) * 16);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          multiply_add<T>(sums[m][n], a[m], b[0], b[1]);
          multiply_add<T>(sums[m][n + 1], a[m], b[2], b[3]);
        }
      }
      if (kN % 2 == 1) {
        uint32_t b[2];
        load_two_matrices_transposed(
            b, from_read + ((pixel + in_warp % 16) * Shape::kReadPitch + warp_n * kN + kN - 1) * 16);
#pragma unroll
        for (int m = 0; m < kM; ++m) multiply_add<T>(sums[m][kN - 1], a[m], b[0], b[1]);
      }
    }
  }
  wait_copies<0>();
  if (kWarpsK > 1) {  // the first of the warps that shared the pixels adds them up, in order
    __syncthreads();
    float* const all = reinterpret_cast<float*>(shared + Shape::kTapBytes);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) all[((m * kN + n) * 4 + i) * Shape::kThreads + tid] = sums[m][n][i];
    __syncthreads();
    if (warp_k > 0) return;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          for (int k = 1; k < kWarpsK; ++k)
            sums[m][n][i] +=
                all[((m * kN + n) * 4 + i) * Shape::kThreads + tid + k * kWarpsM * kWarpsN * kWarp];
  }
  float* const to = partial + (static_cast<int64_t>(lane) * parts + part) * sizes.filters * depth;
  const int group = in_warp / 4, pair = in_warp % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int filter = first_filter + (warp_m * kM + m) * 16 + group + half * 8;
        const int column = first_column + (warp_n * kN + n) * 8 + pair;
        if (filter < sizes.filters && column < depth)
          *reinterpret_cast<float2*>(to + static_cast<int64_t>(filter) * depth + column) =
              make_float2(sums[m][n][half * 2], sums[m][n][half * 2 + 1]);
      }
}

// Enough blocks for one lane to be spread over a good part of a GPU, few enough for their sums to be small.
constexpr int kPixelsAPart = 4096;
constexpr int kMostParts = 64;

int weight_parts(const ConvSizes& sizes) {
  const int64_t pixels = static_cast<int64_t>(sizes.batch) * sizes.out_height * sizes.out_width;
  return static_cast<int>(std::clamp<int64_t>(pixels / kPixelsAPart, 1, kMostParts));
}

template <class T, int kM, int kN, int kWarpsM, int kWarpsN, int kWarpsK>
cudaError_t launch_weight(const ConvArgs& args, cudaStream_t stream) {
  using Shape = WeightShape<kM, kN, kWarpsM, kWarpsN, kWarpsK>;
  const ConvSizes& sizes = args.sizes;
  const auto kernel = weight_kernel<T, kM, kN, kWarpsM, kWarpsN, kWarpsK>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes))
    return error;
  const Window window{sizes.height, sizes.width,  Divisor(),     Divisor(),
                      sizes.kernel, sizes.stride, sizes.padding, false};
  const int depth = sizes.kernel * sizes.kernel * sizes.channels;
  const int column_tiles = (depth + Shape::kColumns - 1) / Shape::kColumns;
  const int filter_tiles = (sizes.filters + Shape::kFilters - 1) / Shape::kFilters;
  const int pixels = sizes.batch * sizes.out_height * sizes.out_width, parts = weight_parts(sizes);
  const int pixels_a_part =
      ((pixels + parts - 1) / parts + Shape::kPixels - 1) / Shape::kPixels * Shape::kPixels;
  const dim3 grid(column_tiles * filter_tiles, parts, sizes.lanes);
  kernel<<<grid, Shape::kThreads, Shape::kBytes, stream>>>(sizes, window, args.x, args.out, args.partial,
                                                           parts, pixels_a_part, column_tiles, args.entries);
  return cudaGetLastError();
}

// Columns come in nines of eight where the filters are 3x3, in eights else.
template <class T, int kN>
cudaError_t launch_weight(const ConvArgs& args, cudaStream_t stream) {
  if (args.sizes.filters <= 16) return launch_weight<T, 1, kN, 1, 1, 4>(args, stream);
  if (args.sizes.filters <= 32) return launch_weight<T, 2, kN, 1, 1, 4>(args, stream);
  if (args.sizes.filters <= 64) return launch_weight<T, 2, kN, 2, 2, 1>(args, stream);
  return launch_weight<T, 2, kN, 4, 2, 1>(args, stream);
}

}  // namespace

bool takes_vector(const ConvSizes& sizes) {
  return sizes.channels % kChunk == 0 && sizes.filters % kChunk == 0;
}

cudaError_t launch_vector_forward(const ConvArgs& args, cudaStream_t stream) {
  return args.type == KernelType::kBf16 ? launch_product<__nv_bfloat16, false>(args, stream)
                                        : launch_product<__half, false>(args, stream);
}

cudaError_t launch_vector_backward_data(const ConvArgs& args, cudaStream_t stream) {
  return args.type == KernelType::kBf16 ? launch_product<__nv_bfloat16, true>(args, stream)
                                        : launch_product<__half, true>(args, stream);
}

cudaError_t launch_vector_backward_weight(const ConvArgs& args, cudaStream_t stream) {
  const bool nines = args.sizes.kernel == 3;
  if (args.type == KernelType::kBf16)
    return nines ? launch_weight<__nv_bfloat16, 9>(args, stream)
                 : launch_weight<__nv_bfloat16, 8>(args, stream);
  return nines ? launch_weight<__half, 9>(args, stream) : launch_weight<__half, 8>(args, stream);
}

int vector_weight_parts(const ConvSizes& sizes) {
  return weight_parts(sizes);
}

}  // namespace espalier::lanes
