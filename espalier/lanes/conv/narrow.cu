// The first convolution of a network: few channels (CIFAR has 3), stride 1.
//
// A block stages a band of rows of one image, with the zeros around it, in shared memory; there the values
// that one filter row reads for a pixel are contiguous, and threads pick matrix fragments from it value by
// value. Forward: rows of the product are pixels, its depth k = (tap, channel), its columns filters. Weight
// gradient: rows are k, the depth is pixels, columns filters; a block adds up the bands of a part of the
// batch.
// Thread mapping: a warp takes 16 pixels at a time; blockIdx: part of the bands, tile of filters, lane.
// Deterministic: a sum's order depends on the lane's shape alone.
#include <algorithm>

#include "espalier/core/random/divisor.h"
#include "espalier/lanes/conv/kernel.h"
#include "espalier/lanes/mma.cuh"

namespace espalier::lanes {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kBandPixels = 1024;      // a band has at most, but one row at least: a whole CIFAR image
constexpr int kMostBandBytes = 40960;  // shared memory for it
constexpr int kMostSteps = 3;          // 16 in k each: 48 values of a filter

struct Band {
  int rows;       // output rows per band; the last of an image may have fewer
  int a_image;    // bands
  int pitch;      // values of a staged row: even
  int lead;       // values before a row's first pixel, at least the padding: even
  Divisor a_row;  // pixels of output
  Divisor units;  // pairs of values of a staged row
};

Band band_of(const ConvSizes& sizes) {
  Band band{};
  band.rows = std::clamp(kBandPixels / sizes.out_width, 1, sizes.out_height);
  band.a_image = (sizes.out_height + band.rows - 1) / band.rows;
  band.lead = (sizes.padding * sizes.channels + 1) / 2 * 2;
  band.pitch = (band.lead + (sizes.width + sizes.padding) * sizes.channels + 1) / 2 * 2;
  band.a_row = Divisor(static_cast<uint32_t>(sizes.out_width));
  band.units = Divisor(static_cast<uint32_t>(band.pitch / 2));
  return band;
}

int band_bytes(const ConvSizes& sizes, const Band& band) {
  return ((band.rows + sizes.kernel - 1) * band.pitch * 2 + 15) / 16 * 16;
}

// Copies the rows that a band reads, zeros around them.
template <class T>
__device__ void stage_band(const ConvSizes& sizes, const Band& band, const T* image, int first_row,
                           T* staged) {
  const int rows = band.rows + sizes.kernel - 1, row_values = sizes.width * sizes.channels;
  // Two values at once where rows begin on 4 bytes.
  const bool pairs = row_values % 2 == 0;
  const int units = band.pitch / 2;
  for (int unit = threadIdx.x; unit < rows * units; unit += kThreads) {
    const int row = static_cast<int>(band.units.quotient(static_cast<uint32_t>(unit)));
    const int at = (unit - row * units) * 2;
    const int y = first_row - sizes.padding + row, value = at - band.lead;
    uint32_t word = 0;
    if (y >= 0 && y < sizes.height && value + 1 >= 0 && value < row_values) {
      const T* const from = image + static_cast<int64_t>(y) * row_values + value;
      if (pairs) {
        word = *reinterpret_cast<const uint32_t*>(from);
      } else {
        if (value >= 0) word = *reinterpret_cast<const uint16_t*>(from);
        if (value + 1 < row_values)
          word |= static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(from)[1]) << 16;
      }
    }
    reinterpret_cast<uint32_t*>(staged)[unit] = word;
  }
}

// Where value k of a filter lies from a pixel's own place in the staged band; k beyond the filter reads the
// first one, and meets a zero.
__device__ inline int offset_of(const ConvSizes& sizes, const Band& band, int k) {
  const int row_values = sizes.kernel * sizes.channels;
  if (k >= sizes.kernel * row_values) return 0;
  const int r = k / row_values;
  return r * band.pitch + k - r * row_values;
}

// A pixel's place: of the first value that it reads.
__device__ inline int place_of(const ConvSizes& sizes, const Band& band, int pixel) {
  const int y = static_cast<int>(band.a_row.quotient(static_cast<uint32_t>(pixel)));
  const int x = pixel - y * sizes.out_width;
  return y * band.pitch + band.lead + (x - sizes.padding) * sizes.channels;
}

__device__ inline uint32_t two(const uint16_t* staged, int first, int second) {
  return static_cast<uint32_t>(staged[first]) | static_cast<uint32_t>(staged[second]) << 16;
}

// A thread's fragments of the filters, zeros where there is none.
template <class T, int kSteps, int kTiles>
__device__ __forceinline__ void load_filters(const ConvSizes& sizes, const T* filters, int first_filter,
                                             int depth, uint32_t (&b)[kSteps][kTiles][2]) {
  const int in_warp = threadIdx.x % kWarp, group = in_warp / 4, pair = in_warp % 4 * 2;
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int k = step * 16 + half * 8 + pair, filter = first_filter + n * 8 + group;
        const uint16_t* const from =
            reinterpret_cast<const uint16_t*>(filters) + static_cast<int64_t>(filter) * depth + k;
        uint32_t word = 0;
        if (filter < sizes.filters && k < depth) word = from[0];
        if (filter < sizes.filters && k + 1 < depth) word |= static_cast<uint32_t>(from[1]) << 16;
        b[step][n][half] = word;
      }
}

// The products of a warp's 16 pixels, of which the thread's two read from `places` on.
template <class T, int kSteps, int kTiles>
__device__ __forceinline__ void multiply_band(const T* staged, const int (&places)[2],
                                              const int (&offsets)[kSteps][4],
                                              const uint32_t (&b)[kSteps][kTiles][2],
                                              float (&sums)[kTiles][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t a[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint16_t* const at = reinterpret_cast<const uint16_t*>(staged) + places[j % 2];
      a[j] = two(at, offsets[step][j / 2 * 2], offsets[step][j / 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) multiply_add<T>(sums[n], a, b[step][n][0], b[step][n][1]);
  }
}

// A row of a warp's results in shared memory: an odd number of chunks.
template <int kTiles>
constexpr int kRowBytes = kTiles * 16 + 16;

// Leaves a warp's sums in shared memory as they are rounded, with the bias if there is one.
template <class T, int kTiles>
__device__ __forceinline__ void round_results(const ConvSizes& sizes, int first_filter,
                                              const float (&sums)[kTiles][4], int lane, const float* bias,
                                              int64_t bias_stride, uint8_t* results) {
  const int in_warp = threadIdx.x % kWarp, group = in_warp / 4, pair = in_warp % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float low = sums[n][half * 2], high = sums[n][half * 2 + 1];
      if (bias != nullptr && first_filter + n * 8 + pair < sizes.filters) {
        const float* const own = bias + lane * bias_stride + first_filter + n * 8 + pair;
        low += own[0];
        high += own[1];
      }
      *reinterpret_cast<uint32_t*>(results + (group + half * 8) * kRowBytes<kTiles> + (n * 8 + pair) * 2) =
          pack<T>(low, high);
    }
}

template <class T, int kSteps, int kTiles>
__global__ void __launch_bounds__(kThreads)
    narrow_forward_kernel(ConvSizes sizes, Band band, int bands_a_block, Stack x, Stack weight, Stack out,
                          const float* bias, int64_t bias_stride, const int64_t* entries) {
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.z;
  if (entries != nullptr && entries[lane] < 0) return;
  constexpr int kColumns = kTiles * 8;
  T* const staged = reinterpret_cast<T*>(shared + kWarps * 16 * kRowBytes<kTiles>);
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  uint8_t* const results = shared + warp * 16 * kRowBytes<kTiles>;
  const int group = in_warp / 4, pair = in_warp % 4 * 2;
  const int depth = sizes.kernel * sizes.kernel * sizes.channels;
  const int first_filter = blockIdx.y * kColumns;

  // The filters stay in registers.
  uint32_t b[kSteps][kTiles][2];
  load_filters<T>(sizes, static_cast<const T*>(weight.data) + lane * weight.lane_stride, first_filter, depth,
                  b);
  int offsets[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      offsets[step][i] = offset_of(sizes, band, step * 16 + pair + i % 2 + i / 2 * 8);

  const int64_t image_values = static_cast<int64_t>(sizes.height) * sizes.width * sizes.channels;
  const T* const read = static_cast<const T*>(x.data) + lane * x.lane_stride;
  T* const written = static_cast<T*>(out.data) + lane * out.lane_stride;
  const int bands = sizes.batch * band.a_image;
  for (int i = 0; i < bands_a_block; ++i) {
    const int index = blockIdx.x * bands_a_block + i;
    if (index >= bands) break;
    const int sample = index / band.a_image, first_row = (index - sample * band.a_image) * band.rows;
    const int pixels = min(band.rows, sizes.out_height - first_row) * sizes.out_width;
    __syncthreads();
    stage_band(sizes, band, read + sample * image_values, first_row, staged);
    __syncthreads();
    T* const to = written + (static_cast<int64_t>(sample) * sizes.out_height + first_row) * sizes.out_width *
                                sizes.filters;
    for (int first = warp * 16; first < pixels; first += kWarps * 16) {
      const int places[2] = {place_of(sizes, band, min(first + group, pixels - 1)),
                             place_of(sizes, band, min(first + group + 8, pixels - 1))};
      float sums[kTiles][4] = {};
      multiply_band<T>(staged, places, offsets, b, sums);
      round_results<T>(sizes, first_filter, sums, lane, bias, bias_stride, results);
      __syncwarp();
      for (int chunk = in_warp; chunk < 16 * kTiles; chunk += kWarp) {
        const int row = chunk / kTiles, filter = first_filter + chunk % kTiles * 8;
        if (first + row < pixels && filter < sizes.filters)
          *reinterpret_cast<uint4*>(to + static_cast<int64_t>(first + row) * sizes.filters + filter) =
              *reinterpret_cast<const uint4*>(results + row * kRowBytes<kTiles> + chunk % kTiles * 16);
      }
      __syncwarp();
    }
  }
}

constexpr int kGradStages = 4;  // for a warp's own gradients, 16 pixels each

// Chunks a pixel's gradients: odd.
template <int kTiles>
constexpr int kGradPitch = kTiles | 1;

// Begins to copy a warp's own gradients, of 16 pixels from `first` on. from: the band's.
template <class T, int kTiles>
__device__ __forceinline__ void fetch_grads(const ConvSizes& sizes, const T* grads, const T* from,
                                            int first_filter, int first, int pixels, uint8_t* to) {
  const int in_warp = threadIdx.x % kWarp;
  if (first < pixels)
    for (int chunk = in_warp; chunk < 16 * kTiles; chunk += kWarp) {
      const int row = chunk / kTiles, filter = first_filter + chunk % kTiles * 8;
      const bool valid = first + row < pixels && filter < sizes.filters;
      copy_chunk(to + (row * kGradPitch<kTiles> + chunk % kTiles) * 16,
                 valid ? from + static_cast<int64_t>(first + row) * sizes.filters + filter : grads, valid);
    }
  commit_copies();
}

// Adds the products of a warp's 16 pixels to its sums. places: where the thread's four read from.
template <class T, int kSteps, int kTiles>
__device__ __forceinline__ void multiply_grads(const T* staged, const uint8_t* own_grads,
                                               const int (&places)[4], const int (&offsets)[kSteps][2],
                                               float (&sums)[kSteps][kTiles][4]) {
  const int in_warp = threadIdx.x % kWarp;
  uint32_t b[kTiles][2];
  const uint32_t tile = shared_address(own_grads);
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
    load_two_matrices_transposed(b[n], tile + (in_warp % 16 * kGradPitch<kTiles> + n) * 16);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t a[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint16_t* const at = reinterpret_cast<const uint16_t*>(staged) + offsets[step][j % 2];
      a[j] = two(at, places[j / 2 * 2], places[j / 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) multiply_add<T>(sums[step][n], a, b[n][0], b[n][1]);
  }
}

// The warps' sums, added up in order. to: [filters][depth].
template <int kSteps, int kTiles>
__device__ __forceinline__ void store_sums(const ConvSizes& sizes, int first_filter, int depth,
                                           const float (&sums)[kSteps][kTiles][4], float* all, float* to) {
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  const int group = in_warp / 4, pair = in_warp % 4 * 2;
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        all[((step * kTiles + n) * 4 + j) * kThreads + threadIdx.x] = sums[step][n][j];
  __syncthreads();
  for (int value = warp; value < kSteps * kTiles * 4; value += kWarps) {
    float sum = 0;
    for (int other = 0; other < kWarps; ++other) sum += all[value * kThreads + other * kWarp + in_warp];
    const int j = value % 4, n = value / 4 % kTiles, step = value / 4 / kTiles;
    const int k = step * 16 + group + j / 2 * 8, filter = first_filter + n * 8 + pair + j % 2;
    if (k < depth && filter < sizes.filters) to[static_cast<int64_t>(filter) * depth + k] = sum;
  }
}

template <class T, int kSteps, int kTiles>
__global__ void __launch_bounds__(kThreads)
    narrow_weight_kernel(ConvSizes sizes, Band band, int bands_a_block, Stack x, Stack grad, float* partial,
                         const int64_t* entries) {
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.z;
  if (entries != nullptr && entries[lane] < 0) return;
  constexpr int kColumns = kTiles * 8;
  constexpr int kStageBytes = 16 * kGradPitch<kTiles> * 16;
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  uint8_t* const own_grads = shared + warp * kGradStages * kStageBytes;
  T* const staged = reinterpret_cast<T*>(shared + kWarps * kGradStages * kStageBytes);
  const int group = in_warp / 4, pair = in_warp % 4 * 2;
  const int depth = sizes.kernel * sizes.kernel * sizes.channels;
  const int first_filter = blockIdx.y * kColumns;

  int offsets[kSteps][2];  // where the two values of a filter lie that the thread has in every fragment
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      offsets[step][half] = offset_of(sizes, band, step * 16 + half * 8 + group);

  const int64_t image_values = static_cast<int64_t>(sizes.height) * sizes.width * sizes.channels;
  const T* const read = static_cast<const T*>(x.data) + lane * x.lane_stride;
  const T* const grads = static_cast<const T*>(grad.data) + lane * grad.lane_stride;
  const int bands = sizes.batch * band.a_image;
  float sums[kSteps][kTiles][4] = {};
  for (int i = 0; i < bands_a_block; ++i) {
    const int index = blockIdx.x * bands_a_block + i;
    if (index >= bands) break;
    const int sample = index / band.a_image, first_row = (index - sample * band.a_image) * band.rows;
    const int pixels = min(band.rows, sizes.out_height - first_row) * sizes.out_width;
    const T* const from = grads + (static_cast<int64_t>(sample) * sizes.out_height + first_row) *
                                      sizes.out_width * sizes.filters;
    const auto fetch = [&](int turn) {
      fetch_grads<T, kTiles>(sizes, grads, from, first_filter, (turn * kWarps + warp) * 16, pixels,
                             own_grads + turn % kGradStages * kStageBytes);
    };
#pragma unroll
    for (int turn = 0; turn < kGradStages - 1; ++turn) fetch(turn);
    __syncthreads();
    stage_band(sizes, band, read + sample * image_values, first_row, staged);
    __syncthreads();
    for (int turn = 0; (turn * kWarps + warp) * 16 < pixels; ++turn) {
      const int first = (turn * kWarps + warp) * 16;
      wait_copies<kGradStages - 2>();
      __syncwarp();
      int places[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        places[j] = place_of(sizes, band, min(first + pair + j % 2 + j / 2 * 8, pixels - 1));
      multiply_grads<T>(staged, own_grads + turn % kGradStages * kStageBytes, places, offsets, sums);
      __syncwarp();
      fetch(turn + kGradStages - 1);
    }
    wait_copies<0>();
  }

  __syncthreads();
  store_sums(sizes, first_filter, depth, sums, reinterpret_cast<float*>(shared),
             partial + (static_cast<int64_t>(lane) * gridDim.x + blockIdx.x) * sizes.filters * depth);
}

int steps_of(const ConvSizes& sizes) {
  return (sizes.kernel * sizes.kernel * sizes.channels + 15) / 16;
}

constexpr int kBandsABlock = 4;  // forward: enough to pay for loading the filters

// Weight gradient: bands per block, so that one lane is spread over many blocks and their sums stay small.
int weight_bands(const ConvSizes& sizes, const Band& band) {
  const int bands = sizes.batch * band.a_image;
  return std::max(1, (bands + 63) / 64 < 4 ? 4 : (bands + 63) / 64);
}

template <class T, int kSteps, int kTiles>
cudaError_t launch_forward(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const Band band = band_of(sizes);
  const auto kernel = narrow_forward_kernel<T, kSteps, kTiles>;
  constexpr int kResultBytes = kWarps * 16 * kRowBytes<kTiles>;
  const int bytes = kResultBytes + band_bytes(sizes, band);
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     kResultBytes + kMostBandBytes))
    return error;
  const int bands = sizes.batch * band.a_image;
  const dim3 grid((bands + kBandsABlock - 1) / kBandsABlock, (sizes.filters + kTiles * 8 - 1) / (kTiles * 8),
                  sizes.lanes);
  kernel<<<grid, kThreads, bytes, stream>>>(sizes, band, kBandsABlock, args.x, args.weight, args.out,
                                            args.bias, args.bias_stride, args.entries);
  return cudaGetLastError();
}

template <class T, int kSteps, int kTiles>
cudaError_t launch_weight(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const Band band = band_of(sizes);
  const auto kernel = narrow_weight_kernel<T, kSteps, kTiles>;
  constexpr int kGradBytes = kWarps * kGradStages * 16 * kGradPitch<kTiles> * 16;
  constexpr int kSumBytes = kSteps * kTiles * 4 * kThreads * 4;
  const int bytes = std::max(kGradBytes + band_bytes(sizes, band), kSumBytes);
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     std::max(kGradBytes + kMostBandBytes, kSumBytes)))
    return error;
  const int bands = sizes.batch * band.a_image, a_block = weight_bands(sizes, band);
  const dim3 grid((bands + a_block - 1) / a_block, (sizes.filters + kTiles * 8 - 1) / (kTiles * 8),
                  sizes.lanes);
  kernel<<<grid, kThreads, bytes, stream>>>(sizes, band, a_block, args.x, args.out, args.partial,
                                            args.entries);
  return cudaGetLastError();
}

enum class Pass { kForward, kWeight };

template <class T, int kSteps, int kTiles>
cudaError_t launch(Pass pass, const ConvArgs& args, cudaStream_t stream) {
  return pass == Pass::kForward ? launch_forward<T, kSteps, kTiles>(args, stream)
                                : launch_weight<T, kSteps, kTiles>(args, stream);
}

template <class T, int kSteps>
cudaError_t launch(Pass pass, const ConvArgs& args, cudaStream_t stream) {
  if (args.sizes.filters <= 8) return launch<T, kSteps, 1>(pass, args, stream);
  if (args.sizes.filters <= 16) return launch<T, kSteps, 2>(pass, args, stream);
  return launch<T, kSteps, 4>(pass, args, stream);
}

template <class T>
cudaError_t launch(Pass pass, const ConvArgs& args, cudaStream_t stream) {
  switch (steps_of(args.sizes)) {
    case 1:
      return launch<T, 1>(pass, args, stream);
    case 2:
      return launch<T, 2>(pass, args, stream);
    default:
      return launch<T, kMostSteps>(pass, args, stream);
  }
}

}  // namespace

bool takes_narrow(const ConvSizes& sizes) {
  return sizes.stride == 1 && sizes.filters % 8 == 0 && steps_of(sizes) <= kMostSteps &&
         sizes.out_width <= kBandPixels && band_bytes(sizes, band_of(sizes)) <= kMostBandBytes;
}

cudaError_t launch_narrow_forward(const ConvArgs& args, cudaStream_t stream) {
  return args.type == KernelType::kBf16 ? launch<__nv_bfloat16>(Pass::kForward, args, stream)
                                        : launch<__half>(Pass::kForward, args, stream);
}

cudaError_t launch_narrow_backward_weight(const ConvArgs& args, cudaStream_t stream) {
  return args.type == KernelType::kBf16 ? launch<__nv_bfloat16>(Pass::kWeight, args, stream)
                                        : launch<__half>(Pass::kWeight, args, stream);
}

int narrow_weight_parts(const ConvSizes& sizes) {
  const Band band = band_of(sizes);
  const int bands = sizes.batch * band.a_image, a_block = weight_bands(sizes, band);
  return (bands + a_block - 1) / a_block;
}

}  // namespace espalier::lanes
