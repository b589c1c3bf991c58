// Forward pass and data gradient of vector.cuh: one product kernel.
#include "espalier/lanes/conv/vector.cuh"

namespace espalier::lanes {
namespace vector_conv {
namespace {

constexpr int kRows = 128;  // pixels per block
constexpr int kDepth = 32;  // along k, per stage
constexpr int kStages = 4;
constexpr int kDepthChunks = kDepth / kChunk;
constexpr int kPixelPitch = kDepthChunks + 1;  // chunks a row of a tile of pixels: odd

// A tile of the weights: [n][k] rows forward, [k][n] rows for the data gradient.
template <int kColumns, bool kDataGrad>
struct WeightTile {
  static constexpr int kTileRows = kDataGrad ? kDepth : kColumns;
  static constexpr int kRowChunks = kDataGrad ? kColumns / kChunk : kDepthChunks;
  static constexpr int kPitch = kRowChunks | 1;
  static constexpr int kBytes = kTileRows * kPitch * 16;
};

template <int kColumns, bool kDataGrad>
constexpr int product_bytes() {
  const int stages = kStages * (kRows * kPixelPitch * 16 + WeightTile<kColumns, kDataGrad>::kBytes);
  const int result = kRows * (kColumns * 2 + 16);
  return stages > result ? stages : result;
}

template <class T, int kColumns, int kWarpsN, bool kDataGrad>
__global__ void __launch_bounds__(4 * kWarpsN * kWarp)
    product_kernel(ConvSizes sizes, Window window, Stack in, Stack weight, Stack out, const float* bias,
                   int64_t bias_stride, const int64_t* entries) {
  constexpr int kThreads = 4 * kWarpsN * kWarp;
  constexpr int kWarpColumns = kColumns / kWarpsN;
  constexpr int kTiles = kWarpColumns / 8;
  using Weights = WeightTile<kColumns, kDataGrad>;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.z;
  if (entries != nullptr && entries[lane] < 0) return;

  const int channels = kDataGrad ? sizes.filters : sizes.channels;    // what is read has so many
  const int columns = kDataGrad ? sizes.channels : sizes.filters;     // what is written has so many
  const int rows_high = kDataGrad ? sizes.height : sizes.out_height;  // pixels that are written
  const int rows_wide = kDataGrad ? sizes.width : sizes.out_width;
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
      if (kDataGrad) {  // row: k = (tap, filter); chunk: channels
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
          if (kDataGrad)
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
          if (kDataGrad)
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

template <class T, int kColumns, int kWarpsN, bool kDataGrad>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const auto kernel = product_kernel<T, kColumns, kWarpsN, kDataGrad>;
  constexpr int kBytes = product_bytes<kColumns, kDataGrad>();
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes))
    return error;
  const auto count = [](int size) { return static_cast<uint32_t>(size); };
  const int high = kDataGrad ? sizes.height : sizes.out_height,
            wide = kDataGrad ? sizes.width : sizes.out_width;
  const Window window{kDataGrad ? sizes.out_height : sizes.height,
                      kDataGrad ? sizes.out_width : sizes.width,
                      Divisor(count(wide)),
                      Divisor(count(high * wide)),
                      sizes.kernel,
                      sizes.stride,
                      sizes.padding,
                      kDataGrad};
  const int pixels =
      sizes.batch * (kDataGrad ? sizes.height * sizes.width : sizes.out_height * sizes.out_width);
  const int columns = kDataGrad ? sizes.channels : sizes.filters;
  const dim3 grid((pixels + kRows - 1) / kRows, (columns + kColumns - 1) / kColumns, sizes.lanes);
  kernel<<<grid, 4 * kWarpsN * kWarp, kBytes, stream>>>(sizes, window, kDataGrad ? args.out : args.x,
                                                        args.weight, kDataGrad ? args.x : args.out, args.bias,
                                                        args.bias_stride, args.entries);
  return cudaGetLastError();
}

template <class T, bool kDataGrad>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const int columns = kDataGrad ? args.sizes.channels : args.sizes.filters;
  if (columns <= 8) return launch_product<T, 8, 1, kDataGrad>(args, stream);
  if (columns <= 16) return launch_product<T, 16, 1, kDataGrad>(args, stream);
  if (columns <= 32) return launch_product<T, 32, 1, kDataGrad>(args, stream);
  if (columns <= 64) return launch_product<T, 64, 1, kDataGrad>(args, stream);
  return launch_product<T, 128, 2, kDataGrad>(args, stream);
}

}  // namespace
}  // namespace vector_conv

bool takes_vector(const ConvSizes& sizes) {
  return sizes.channels % vector_conv::kChunk == 0 && sizes.filters % vector_conv::kChunk == 0;
}

cudaError_t launch_vector_forward(const ConvArgs& args, cudaStream_t stream) {
  using namespace vector_conv;
  return args.type == KernelType::kBf16 ? launch_product<__nv_bfloat16, false>(args, stream)
                                        : launch_product<__half, false>(args, stream);
}

cudaError_t launch_vector_backward_data(const ConvArgs& args, cudaStream_t stream) {
  using namespace vector_conv;
  return args.type == KernelType::kBf16 ? launch_product<__nv_bfloat16, true>(args, stream)
                                        : launch_product<__half, true>(args, stream);
}

}  // namespace espalier::lanes
