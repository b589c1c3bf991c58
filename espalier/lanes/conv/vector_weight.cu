// Weight gradient of vector.cuh: sums over parts of the pixels; dispatch.cu adds them up.
#include <algorithm>

#include "espalier/lanes/conv/vector.cuh"

namespace espalier::lanes {
namespace vector_conv {
namespace {

// The weight gradient. A block: a tile of filters x columns of (tap, channel), over a part of the lane's
// pixels. kWarpsK warps share the pixels of a stage out and add up at the end.
template <int kM, int kN, int kWarpsM, int kWarpsN, int kWarpsK>
struct WeightShape {
  static constexpr int kFilters = kM * 16 * kWarpsM;
  static constexpr int kColumns = kN * 8 * kWarpsN;
  static constexpr int kThreads = kWarpsM * kWarpsN * kWarpsK * kWarp;
  static constexpr int kPixels = kWarpsK == 1 ? 32 : 16 * kWarpsK;  // per stage
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
  static constexpr int kSharers = kWarpsK;
  static constexpr int kSlices = kPixels / 16 / kSharers;  // of 16 pixels, for a warp
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

// A block's tile of a lane's gradient, and the pixels that it takes its sums over.
template <class Shape>
struct WeightTile {
  int first_column, first_filter;
  int channels, depth;  // depth: columns of (tap, channel)
  int begin, end;

  __device__ WeightTile(const ConvSizes& sizes, int part, int pixels_a_part, int column_tiles)
      : first_column(blockIdx.x % column_tiles * Shape::kColumns),
        first_filter(blockIdx.x / column_tiles * Shape::kFilters),
        channels(sizes.channels),
        depth(sizes.kernel * sizes.kernel * sizes.channels),
        begin(part * pixels_a_part),
        end(min(sizes.batch * (sizes.out_height * sizes.out_width), begin + pixels_a_part)) {}
};

// Where each chunk of columns reads: r, s, channel, whether it is one.
template <class Shape>
__device__ __forceinline__ void list_taps(const WeightTile<Shape>& tile, int kernel, int4* taps) {
  for (int chunk = threadIdx.x; chunk < Shape::kColumns / kChunk; chunk += Shape::kThreads) {
    const int column = tile.first_column + chunk * kChunk;
    const TapCursor tap(column, tile.channels, kernel);
    taps[chunk] = make_int4(tap.r, tap.s, tap.channel, column < tile.depth);
  }
}

// A stage: the gradients of its pixels, then what the columns read for them.
template <class Shape>
__device__ __forceinline__ uint8_t* grads_of(uint8_t* shared, int step) {
  return shared + Shape::kTapBytes + step % Shape::kStages * Shape::kStageBytes;
}
template <class Shape>
__device__ __forceinline__ uint8_t* reads_of(uint8_t* shared, int step) {
  return grads_of<Shape>(shared, step) + Shape::kPixels * Shape::kGradPitch * 16;
}

// Copies stages of pixels, one after the other: a thread some chunks of every kPixelsAtOnce-th pixel.
template <class T, class Shape>
struct StageCopier {
  const T *read, *grads;  // the lane's
  const int4* taps;
  int copier, first;
  PixelCursor cursor;
  int image_values;

  __device__ __forceinline__ StageCopier(const ConvSizes& sizes, const Window& window,
                                         const WeightTile<Shape>& tile, const T* read_, const T* grads_,
                                         const int4* taps_)
      : read(read_),
        grads(grads_),
        taps(taps_),
        copier(static_cast<int>(threadIdx.x) % Shape::kCopiers),
        first(static_cast<int>(threadIdx.x) / Shape::kCopiers),
        cursor(tile.begin + first, sizes.out_height, sizes.out_width),
        image_values(window.height * window.width * tile.channels) {}

  __device__ __forceinline__ void fetch(const ConvSizes& sizes, const Window& window,
                                        const WeightTile<Shape>& tile, int step, uint8_t* shared) {
    uint8_t* const to_grads = grads_of<Shape>(shared, step);
    uint8_t* const to_read = reads_of<Shape>(shared, step);
#pragma unroll
    for (int pass = 0; pass < Shape::kPasses; ++pass) {
      const int row = first + pass * Shape::kPixelsAtOnce;
      const int pixel = tile.begin + step * Shape::kPixels + row;
      const bool there = pixel < tile.end;
      const T* const own_grads =
          grads + static_cast<int64_t>(there ? pixel : 0) * sizes.filters + tile.first_filter;
      for (int chunk = copier; chunk < Shape::kFilters / kChunk; chunk += Shape::kCopiers) {
        const bool valid = there && tile.first_filter + chunk * kChunk < sizes.filters;
        copy_chunk(to_grads + (row * Shape::kGradPitch + chunk) * 16,
                   valid ? own_grads + chunk * kChunk : grads, valid);
      }
      const T* const image = read + static_cast<int64_t>(there ? cursor.sample : 0) * image_values;
      for (int chunk = copier; chunk < Shape::kColumns / kChunk; chunk += Shape::kCopiers) {
        const int4 tap = taps[chunk];
        const int place = there && tap.w ? place_of(window, cursor.y, cursor.x, tap.x, tap.y) : -1;
        copy_chunk(to_read + (row * Shape::kReadPitch + chunk) * 16,
                   image + (place < 0 ? 0 : place * tile.channels + tap.z), place >= 0);
      }
      cursor.advance(Shape::kPixelsAtOnce, sizes.out_height, sizes.out_width);
    }
  }
};

// Which of a block's warps a thread belongs to, along filters, columns and pixels.
template <int kWarpsM, int kWarpsN>
struct WarpShare {
  int in_warp, m, n, k;

  __device__ WarpShare() {
    const int tid = threadIdx.x, warp = tid / kWarp;
    in_warp = tid % kWarp;
    m = warp % kWarpsM;
    n = warp / kWarpsM % kWarpsN;
    k = warp / (kWarpsM * kWarpsN);
  }
};

// Adds the products of a warp's share of a stage's pixels to its sums, 16 pixels at a time.
template <class T, class Shape, class Warp, int kM, int kN>
__device__ __forceinline__ void multiply_pixels(const Warp& warp, uint32_t from_grads, uint32_t from_read,
                                                float (&sums)[kM][kN][4]) {
  const int in_warp = warp.in_warp;
#pragma unroll
  for (int slice = 0; slice < Shape::kSlices; ++slice) {
    const int pixel = (warp.k + slice * Shape::kSharers) * 16;
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m)  // matrices: filters 0-7 and 8-15 of pixels 0-7, then of pixels 8-15
      load_matrices_transposed(a[m],
                               from_grads + ((pixel + in_warp % 8 + in_warp / 16 * 8) * Shape::kGradPitch +
                                             (warp.m * kM + m) * 2 + in_warp / 8 % 2) *
                                                16);
#pragma unroll
    for (int n = 0; n + 1 < kN; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(
          b, from_read + ((pixel + in_warp % 16) * Shape::kReadPitch + warp.n * kN + n + in_warp / 16) * 16);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(sums[m][n], a[m], b[0], b[1]);
        multiply_add<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
    if (kN % 2 == 1) {
      uint32_t b[2];
      load_two_matrices_transposed(
          b, from_read + ((pixel + in_warp % 16) * Shape::kReadPitch + warp.n * kN + kN - 1) * 16);
#pragma unroll
      for (int m = 0; m < kM; ++m) multiply_add<T>(sums[m][kN - 1], a[m], b[0], b[1]);
    }
  }
}

// Where warps have shared the pixels out, the first of them adds the others' sums up, in order. False for
// those others, whose work is done.
template <class Shape, int kM, int kN>
__device__ __forceinline__ bool add_sharers(int warp_k, float* all, float (&sums)[kM][kN][4]) {
  if (Shape::kSharers == 1) return true;
  const int tid = threadIdx.x;
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) all[((m * kN + n) * 4 + i) * Shape::kThreads + tid] = sums[m][n][i];
  __syncthreads();
  if (warp_k > 0) return false;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        for (int k = 1; k < Shape::kSharers; ++k)
          sums[m][n][i] +=
              all[((m * kN + n) * 4 + i) * Shape::kThreads + tid + k * (Shape::kThreads / Shape::kSharers)];
  return true;
}

// to: [filters][depth].
template <class Shape, class Warp, int kM, int kN>
__device__ __forceinline__ void store_sums(const WeightTile<Shape>& tile, const Warp& warp, int filters,
                                           const float (&sums)[kM][kN][4], float* to) {
  const int group = warp.in_warp / 4, pair = warp.in_warp % 4 * 2;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int filter = tile.first_filter + (warp.m * kM + m) * 16 + group + half * 8;
        const int column = tile.first_column + (warp.n * kN + n) * 8 + pair;
        if (filter < filters && column < tile.depth)
          *reinterpret_cast<float2*>(to + static_cast<int64_t>(filter) * tile.depth + column) =
              make_float2(sums[m][n][half * 2], sums[m][n][half * 2 + 1]);
      }
}

template <class T, int kM, int kN, int kWarpsM, int kWarpsN, int kWarpsK>
__global__ void __launch_bounds__(kWarpsM* kWarpsN* kWarpsK* kWarp)
    weight_kernel(ConvSizes sizes, Window window, Stack in, Stack grad, float* partial, int parts,
                  int pixels_a_part, int column_tiles, const int64_t* entries) {
  using Shape = WeightShape<kM, kN, kWarpsM, kWarpsN, kWarpsK>;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.z, part = blockIdx.y;
  if (entries != nullptr && entries[lane] < 0) return;
  const WeightTile<Shape> tile(sizes, part, pixels_a_part, column_tiles);
  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  const T* const grads = static_cast<const T*>(grad.data) + lane * grad.lane_stride;
  int4* const taps = reinterpret_cast<int4*>(shared);
  list_taps<Shape>(tile, sizes.kernel, taps);
  __syncthreads();
  StageCopier<T, Shape> copier(sizes, window, tile, read, grads, taps);
  const WarpShare<kWarpsM, kWarpsN> warp;
  float sums[kM][kN][4] = {};
  const int steps = tile.end > tile.begin ? (tile.end - tile.begin + Shape::kPixels - 1) / Shape::kPixels : 0;
  each_stage<Shape::kStages>(
      steps, [&](int step) { copier.fetch(sizes, window, tile, step, shared); },
      [&](int step) {
        multiply_pixels<T, Shape>(warp, shared_address(grads_of<Shape>(shared, step)),
                                  shared_address(reads_of<Shape>(shared, step)), sums);
      });
  if (!add_sharers<Shape>(warp.k, reinterpret_cast<float*>(shared + Shape::kTapBytes), sums)) return;
  store_sums(tile, warp, sizes.filters, sums,
             partial + (static_cast<int64_t>(lane) * parts + part) * sizes.filters * tile.depth);
}

// Enough blocks for one lane alone to fill a GPU, since a stack of seeds often has one entry; few enough for
// writing and reading their sums to cost a fifth of what reading the pixels does.
constexpr int kFewestPixels = 1024, kMostPixels = 4096;
constexpr int kMostParts = 256;

int weight_parts(const ConvSizes& sizes) {
  const int64_t pixels = static_cast<int64_t>(sizes.batch) * sizes.out_height * sizes.out_width;
  const int64_t weights = static_cast<int64_t>(sizes.filters) * sizes.kernel * sizes.kernel * sizes.channels;
  constexpr int64_t kSumBytes = 8, kValueBytes = 2, kShare = 5;
  const int64_t pixels_a_part =
      std::clamp<int64_t>(kShare * kSumBytes * weights / (kValueBytes * (sizes.channels + sizes.filters)),
                          kFewestPixels, kMostPixels);
  return static_cast<int>(std::clamp<int64_t>(pixels / pixels_a_part, 1, kMostParts));
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
}  // namespace vector_conv

cudaError_t launch_vector_backward_weight(const ConvArgs& args, cudaStream_t stream) {
  using namespace vector_conv;
  const bool nines = args.sizes.kernel == 3;
  if (args.type == KernelType::kBf16)
    return nines ? launch_weight<__nv_bfloat16, 9>(args, stream)
                 : launch_weight<__nv_bfloat16, 8>(args, stream);
  return nines ? launch_weight<__half, 9>(args, stream) : launch_weight<__half, 8>(args, stream);
}

int vector_weight_parts(const ConvSizes& sizes) {
  return vector_conv::weight_parts(sizes);
}

}  // namespace espalier::lanes
