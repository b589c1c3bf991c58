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
