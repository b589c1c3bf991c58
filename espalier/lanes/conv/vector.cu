// Forward pass and data gradient of vector.cuh: one product kernel.
#include "espalier/lanes/conv/vector.cuh"

namespace espalier::lanes {
namespace vector_conv {
namespace {

constexpr int kRows = 128;  // pixels per block
constexpr int kDepth = 32;  // along k, per stage
constexpr int kStages = 4;
constexpr int kDepthChunks = kDepth / kChunk;
constexpr int kPixelPitch = kDepthChunks + 1;  // chunks per row of a tile of pixels: odd

// A block's tile of a lane's product, kRows pixels by kColumns, and the sizes of the whole.
template <int kColumns, int kWarpsN, bool kDataGrad>
struct ProductTile {
  static constexpr int kThreads = 4 * kWarpsN * kWarp;
  static constexpr int kWarpColumns = kColumns / kWarpsN;
  static constexpr int kTiles = kWarpColumns / 8;  // of eight columns, for a warp
  static constexpr bool kIsDataGrad = kDataGrad;
  // A tile of the weights: [n][k] rows forward, [k][n] rows for the data gradient.
  static constexpr int kWeightRows = kDataGrad ? kDepth : kColumns;
  static constexpr int kWeightChunks = kDataGrad ? kColumns / kChunk : kDepthChunks;
  static constexpr int kWeightPitch = kWeightChunks | 1;
  // A stage: a tile of pixels, then one of weights.
  static constexpr int kPixelBytes = kRows * kPixelPitch * 16;
  static constexpr int kStageBytes = kPixelBytes + kWeightRows * kWeightPitch * 16;
  // The result takes the place of the stages.
  static constexpr int kResultChunks = kColumns / kChunk;
  static constexpr int kResultPitch = kColumns * 2 + 16;
  static constexpr int kResultBytes = kRows * kResultPitch;
  static constexpr int kBytes = kStages * kStageBytes > kResultBytes ? kStages* kStageBytes : kResultBytes;

  int channels, columns;     // what is read has so many, what is written
  int rows_high, rows_wide;  // pixels that are written
  int pixels, kernel, depth;
  int first_row, first_column;

  __device__ explicit ProductTile(const ConvSizes& sizes)
      : channels(kDataGrad ? sizes.filters : sizes.channels),
        columns(kDataGrad ? sizes.channels : sizes.filters),
        rows_high(kDataGrad ? sizes.height : sizes.out_height),
        rows_wide(kDataGrad ? sizes.width : sizes.out_width),
        pixels(sizes.batch * rows_high * rows_wide),
        kernel(sizes.kernel),
        depth(kernel * kernel * channels),
        first_row(blockIdx.x * kRows),
        first_column(blockIdx.y * kColumns) {}
};

// The pixels that a thread copies: the same chunk of several rows of the tile.
template <class T, int kThreads>
struct PixelRows {
  static constexpr int kRowsAtOnce = kThreads / kDepthChunks;
  static constexpr int kCopies = kRows / kRowsAtOnce;

  int chunk, first;
  int y[kCopies], x[kCopies];
  const T* image[kCopies];

  template <class Tile>
  __device__ __forceinline__ PixelRows(const Tile& tile, const Window& window, const T* read)
      : chunk(static_cast<int>(threadIdx.x) % kDepthChunks),
        first(static_cast<int>(threadIdx.x) / kDepthChunks) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int pixel = tile.first_row + first + i * kRowsAtOnce;
      const int sample = static_cast<int>(window.a_sample.quotient(static_cast<uint32_t>(pixel)));
      const int rest = pixel - sample * tile.rows_high * tile.rows_wide;
      const int row = static_cast<int>(window.a_row.quotient(static_cast<uint32_t>(rest)));
      y[i] = pixel < tile.pixels ? row : -(1 << 20);  // far outside: nothing is read
      x[i] = rest - row * tile.rows_wide;
      image[i] = read + static_cast<int64_t>(pixel < tile.pixels ? sample : 0) * window.height *
                            window.width * tile.channels;
    }
  }

  // Begins to copy a step's values, and moves the cursor on to the next one's.
  template <class Tile>
  __device__ __forceinline__ void fetch(const Tile& tile, const Window& window, int step, TapCursor& cursor,
                                        uint8_t* to) const {
    const bool in_depth = step * kDepth + chunk * kChunk < tile.depth;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int place = in_depth ? place_of(window, y[i], x[i], cursor.r, cursor.s) : -1;
      const T* from =
          image[i] + (place < 0 ? 0 : static_cast<int64_t>(place) * tile.channels + cursor.channel);
      copy_chunk(to + ((first + i * kRowsAtOnce) * kPixelPitch + chunk) * 16, from, place >= 0);
    }
    cursor.advance(kDepth, tile.channels, tile.kernel);
  }
};

template <class T, class Tile>
__device__ __forceinline__ void fetch_weights(const Tile& tile, const T* filters, int step, uint8_t* to) {
  const int taps = tile.kernel * tile.kernel;
  for (int c = threadIdx.x; c < Tile::kWeightRows * Tile::kWeightChunks; c += Tile::kThreads) {
    const int row = c / Tile::kWeightChunks, chunk = c - row * Tile::kWeightChunks;
    int64_t from = 0;
    bool valid;
    if (Tile::kIsDataGrad) {  // row: k = (tap, filter); chunk: channels
      const int k = step * kDepth + row, column = tile.first_column + chunk * kChunk;
      const int tap = k / tile.channels, filter = k - tap * tile.channels;
      valid = k < tile.depth && column < tile.columns;
      if (valid) from = (static_cast<int64_t>(filter) * taps + tap) * tile.columns + column;
    } else {  // row: filter; chunk: k
      const int k = step * kDepth + chunk * kChunk, column = tile.first_column + row;
      valid = k < tile.depth && column < tile.columns;
      if (valid) from = static_cast<int64_t>(column) * tile.depth + k;
    }
    copy_chunk(to + (row * Tile::kWeightPitch + chunk) * 16, filters + from, valid);
  }
}

// What a warp does of a block's tile: 32 rows of some columns.
template <int kWarpColumns>
struct WarpPlace {
  int in_warp, row, column;

  __device__ WarpPlace()
      : in_warp(static_cast<int>(threadIdx.x) % kWarp),
        row(static_cast<int>(threadIdx.x) / kWarp % 4 * 32),
        column(static_cast<int>(threadIdx.x) / kWarp / 4 * kWarpColumns) {}
};

// The weights of 16 in k (`part` of a stage) and of eight columns, or of two times eight.
template <class Tile>
__device__ __forceinline__ void load_columns(uint32_t (&b)[2], uint32_t from, int part, int column,
                                             int in_warp) {
  if (Tile::kIsDataGrad)
    load_two_matrices_transposed(b,
                                 from + ((part * 16 + in_warp % 16) * Tile::kWeightPitch + column / 8) * 16);
  else
    load_two_matrices(b,
                      from + ((column + in_warp % 8) * Tile::kWeightPitch + part * 2 + in_warp / 8 % 2) * 16);
}
template <class Tile>
__device__ __forceinline__ void load_columns(uint32_t (&b)[4], uint32_t from, int part, int column,
                                             int in_warp) {
  if (Tile::kIsDataGrad)
    load_matrices_transposed(
        b, from + ((part * 16 + in_warp % 16) * Tile::kWeightPitch + column / 8 + in_warp / 16) * 16);
  else
    load_matrices(b, from + ((column + in_warp % 8 + in_warp / 16 * 8) * Tile::kWeightPitch + part * 2 +
                             in_warp / 8 % 2) *
                                16);
}

// Adds a stage's products to a warp's sums.
template <class T, class Tile>
__device__ __forceinline__ void multiply_stage(const Tile& tile, const WarpPlace<Tile::kWarpColumns>& warp,
                                               int step, const uint8_t* stage,
                                               float (&sums)[2][Tile::kTiles][4]) {
  const uint32_t from_pixels = shared_address(stage);
  const uint32_t from_weights = shared_address(stage + Tile::kPixelBytes);
#pragma unroll
  for (int part = 0; part < kDepth / 16; ++part) {
    if (step * kDepth + part * 16 >= tile.depth) break;
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
      load_matrices(a[m], from_pixels + ((warp.row + m * 16 + warp.in_warp % 16) * kPixelPitch + part * 2 +
                                         warp.in_warp / 16) *
                                            16);
    constexpr int kAtOnce = Tile::kTiles == 1 ? 1 : 2;
#pragma unroll
    for (int n = 0; n < Tile::kTiles; n += kAtOnce) {
      uint32_t b[kAtOnce * 2];
      load_columns<Tile>(b, from_weights, part, warp.column + n * 8, warp.in_warp);
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) multiply_add<T>(sums[m][n + i], a[m], b[i * 2], b[i * 2 + 1]);
    }
  }
}

// Leaves a warp's sums in shared memory as they are rounded, with the bias if there is one, so that rows are
// written 16 bytes at a time.
template <class T, class Tile>
__device__ __forceinline__ void round_result(const Tile& tile, const WarpPlace<Tile::kWarpColumns>& warp,
                                             const float (&sums)[2][Tile::kTiles][4], int lane,
                                             const float* bias, int64_t bias_stride, uint8_t* result) {
  const int group = warp.in_warp / 4, pair = warp.in_warp % 4 * 2;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < Tile::kTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp.row + m * 16 + group + half * 8, column = warp.column + n * 8 + pair;
        float low = sums[m][n][half * 2], high = sums[m][n][half * 2 + 1];
        if (bias != nullptr && tile.first_column + column < tile.columns) {
          const float* const own = bias + lane * bias_stride + tile.first_column + column;
          low += own[0];
          high += own[1];
        }
        *reinterpret_cast<uint32_t*>(result + row * Tile::kResultPitch + column * 2) = pack<T>(low, high);
      }
}

template <class T, class Tile>
__device__ __forceinline__ void store_result(const Tile& tile, const uint8_t* result, T* written) {
  for (int c = threadIdx.x; c < kRows * Tile::kResultChunks; c += Tile::kThreads) {
    const int row = c / Tile::kResultChunks, chunk = c - row * Tile::kResultChunks;
    const int pixel = tile.first_row + row, column = tile.first_column + chunk * kChunk;
    if (pixel < tile.pixels && column < tile.columns)
      *reinterpret_cast<uint4*>(written + static_cast<int64_t>(pixel) * tile.columns + column) =
          *reinterpret_cast<const uint4*>(result + row * Tile::kResultPitch + chunk * 16);
  }
}

template <class T, int kColumns, int kWarpsN, bool kDataGrad>
__global__ void __launch_bounds__(4 * kWarpsN * kWarp)
    product_kernel(ConvSizes sizes, Window window, Stack in, Stack weight, Stack out, const float* bias,
                   int64_t bias_stride, const int64_t* entries) {
  using Tile = ProductTile<kColumns, kWarpsN, kDataGrad>;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.z;
  if (entries != nullptr && entries[lane] < 0) return;
  const Tile tile(sizes);
  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  const T* const filters = static_cast<const T*>(weight.data) + lane * weight.lane_stride;
  const PixelRows<T, Tile::kThreads> rows(tile, window, read);
  TapCursor cursor(rows.chunk * kChunk, tile.channels, tile.kernel);
  const WarpPlace<Tile::kWarpColumns> warp;
  float sums[2][Tile::kTiles][4] = {};
  const auto stage_of = [&](int step) { return shared + step % kStages * Tile::kStageBytes; };
  each_stage<kStages>((tile.depth + kDepth - 1) / kDepth,
                      [&](int step) {
                        rows.fetch(tile, window, step, cursor, stage_of(step));
                        fetch_weights(tile, filters, step, stage_of(step) + Tile::kPixelBytes);
                      },
                      [&](int step) { multiply_stage<T>(tile, warp, step, stage_of(step), sums); });
  __syncthreads();
  round_result<T>(tile, warp, sums, lane, bias, bias_stride, shared);
  __syncthreads();
  store_result(tile, shared, static_cast<T*>(out.data) + lane * out.lane_stride);
}

template <class T, int kColumns, int kWarpsN, bool kDataGrad>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const auto kernel = product_kernel<T, kColumns, kWarpsN, kDataGrad>;
  constexpr int kBytes = ProductTile<kColumns, kWarpsN, kDataGrad>::kBytes;
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
