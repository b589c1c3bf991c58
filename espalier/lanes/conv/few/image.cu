// Forward pass and data gradient of image.cuh: one product kernel.
//
// Thread mapping: a warp does 16 pixels and kTiles * 8 columns at a time; its part of the weights stays in
// registers. Columns are dealt out so that a thread's are consecutive filters, which it writes at once:
// column 2 t + i of tile j is filter t * 2 kTiles + 2 j + i.
#include "espalier/lanes/conv/few/image.cuh"

namespace espalier::lanes {
namespace image_conv {
namespace {

// The weights of one warp, as the second factors of its products.
template <class T, int kPlanes, int kTiles, bool kDataGrad>
struct Filters {
  static constexpr int kChunks = kTaps * kPlanes;
  uint32_t b[kChunks][kTiles];  // two values of a chunk for one column

  // weight: the lane's, [K,3,3,C]. first: the warp's first column.
  __device__ Filters(const T* weight, int first, int channels, int in_warp) {
    const int column_in_tile = in_warp / 4, pair = in_warp % 4 * 2;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int column = first + column_in_tile / 2 * (2 * kTiles) + 2 * j + column_in_tile % 2;
#pragma unroll
      for (int q = 0; q < kChunks; ++q) {
        if constexpr (kDataGrad) {  // the chunk's values are filters, the column is a channel
          const int tap = q / kPlanes, filter = q % kPlanes * kChunk + pair;
          const T* const from = weight + (filter * kTaps + tap) * channels + column;
          const uint32_t low = *reinterpret_cast<const uint16_t*>(from);
          const uint32_t high = *reinterpret_cast<const uint16_t*>(from + kTaps * channels);
          b[q][j] = low | high << 16;
        } else {
          b[q][j] = *reinterpret_cast<const uint32_t*>(weight + (column * kChunks + q) * kChunk + pair);
        }
      }
    }
  }
};

// kSplit: warps that share the columns of a tile of pixels out. in: what is read, planes of channels (or, for
// the data gradient, of filters). blockIdx: part of the groups, lane.
template <class T, int kPlanes, int kTiles, int kSplit, bool kDataGrad>
__global__ void __launch_bounds__(kThreads, 2)
    product_kernel(ConvSizes sizes, Stage stage, int groups_a_block, Stack in, Stack weight, Stack out,
                   const float* bias, int64_t bias_stride, const int64_t* entries) {
  constexpr int kChunks = kTaps * kPlanes, kSteps = kChunks / 2;
  constexpr int kReadChannels = kPlanes * kChunk, kColumns = kTiles * 8 * kSplit;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.y;
  if (entries != nullptr && entries[lane] < 0) return;
  const int stage_bytes = bytes_of(stage, kPlanes);
  clear(shared, 2 * stage_bytes);
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  const int first_column = warp % kSplit * kTiles * 8;
  const Filters<T, kPlanes, kTiles, kDataGrad> filters(
      static_cast<const T*>(weight.data) + lane * weight.lane_stride, first_column, sizes.channels, in_warp);
  // Fragments of two chunks: the first half of a warp names the rows of one, the second half those of the
  // other.
  int offsets[kSteps + kChunks % 2];
#pragma unroll
  for (int step = 0; step < kSteps + kChunks % 2; ++step)
    offsets[step] = offset_of<kPlanes>(stage, min(step * 2 + in_warp / 16, kChunks - 1), kDataGrad) * 16;

  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  T* const written = static_cast<T*>(out.data) + lane * out.lane_stride;
  const int64_t image_values = static_cast<int64_t>(stage.pixels) * kReadChannels;
  const int own_column = first_column + in_warp % 4 * 2 * kTiles;
  const float* const own_bias = bias == nullptr ? nullptr : bias + lane * bias_stride + own_column;
  const int first_group = blockIdx.x * groups_a_block;
  const auto images_in = [&](int group) { return min(stage.images, sizes.batch - group * stage.images); };
  const auto fetch = [&](int turn) {
    const int group = first_group + turn;
    if (turn < groups_a_block && images_in(group) > 0)
      fetch_images<T, kPlanes>(stage, sizes.width, read + group * stage.images * image_values,
                               images_in(group), shared + turn % 2 * stage_bytes);
    commit_copies();
  };
  __syncthreads();
  fetch(0);
  for (int turn = 0; turn < groups_a_block; ++turn) {
    const int group = first_group + turn, images = images_in(group);
    if (images <= 0) break;
    wait_copies<0>();
    __syncthreads();
    fetch(turn + 1);
    const uint32_t from = shared_address(shared + turn % 2 * stage_bytes);
    const int pixels = images * stage.pixels;
    T* const to = written + static_cast<int64_t>(group) * stage.images * stage.pixels * kColumns + own_column;
    for (int first = warp / kSplit * 16; first < pixels; first += kWarps / kSplit * 16) {
      const uint32_t window = from + place_of(stage, sizes.width, min(first + in_warp % 16, pixels - 1)) * 16;
      float sums[kTiles][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t a[4];
        load_matrices(a, window + offsets[step]);
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          multiply_add<T>(sums[j], a, filters.b[step * 2][j], filters.b[step * 2 + 1][j]);
      }
      if constexpr (kChunks % 2 == 1) {
        uint32_t a[2];
        load_two_matrices(a, window + offsets[kSteps]);
#pragma unroll
        for (int j = 0; j < kTiles; ++j) multiply_add_half<T>(sums[j], a, filters.b[kChunks - 1][j]);
      }
      const int row = first + in_warp / 4;
      if (row < pixels) store_row<T, kTiles>(to + static_cast<int64_t>(row) * kColumns, sums, 0, own_bias);
      if (row + 8 < pixels)
        store_row<T, kTiles>(to + static_cast<int64_t>(row + 8) * kColumns, sums, 1, own_bias);
    }
  }
  wait_copies<0>();
}

// Two for each of an H200's multiprocessors, which is as many as it holds: the weights are loaded once a
// block.
constexpr int kWantedBlocks = 264;
constexpr int kMostGroups = 16;

template <class T, int kPlanes, int kTiles, int kSplit, bool kDataGrad>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const Stage stage = stage_of(sizes.height, sizes.width, kPlanes, sizes.batch);
  const auto kernel = product_kernel<T, kPlanes, kTiles, kSplit, kDataGrad>;
  const int bytes = 2 * bytes_of(stage, kPlanes);
  // The most that any image takes, so that a launch that was captured keeps what it was allowed.
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 2 * kMostStageBytes))
    return error;
  const int groups = (sizes.batch + stage.images - 1) / stage.images;
  const int groups_a_block = static_cast<int>(std::clamp<int64_t>(
      (static_cast<int64_t>(groups) * sizes.lanes + kWantedBlocks - 1) / kWantedBlocks, 1, kMostGroups));
  const dim3 grid(static_cast<unsigned>((groups + groups_a_block - 1) / groups_a_block),
                  static_cast<unsigned>(sizes.lanes));
  kernel<<<grid, kThreads, bytes, stream>>>(sizes, stage, groups_a_block, kDataGrad ? args.out : args.x,
                                            args.weight, kDataGrad ? args.x : args.out, args.bias,
                                            args.bias_stride, args.entries);
  return cudaGetLastError();
}

// Registers hold 72 words of weights at most: four planes and four tiles are shared out over two warps.
template <bool kDataGrad>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const int read = kDataGrad ? args.sizes.filters : args.sizes.channels;
  const int written = kDataGrad ? args.sizes.channels : args.sizes.filters;
  return for_narrow(args.type, [&](auto value) {
    return for_few(read, [&](auto planes) {
      return for_few(written, [&](auto tiles) {
        constexpr int kSplit = planes() == 4 && tiles() == 4 ? 2 : 1;
        return launch_product<decltype(value), planes(), tiles() / kSplit, kSplit, kDataGrad>(args, stream);
      });
    });
  });
}

}  // namespace
}  // namespace image_conv

bool takes_image(const ConvSizes& sizes) {
  using namespace image_conv;
  constexpr int64_t kMostPixels = 1 << 20;  // in an image, long before its bytes are counted in 32 bits
  if (sizes.kernel != 3 || sizes.stride != 1 || sizes.padding != 1) return false;
  if (!is_few(sizes.channels) || !is_few(sizes.filters)) return false;
  if (static_cast<int64_t>(sizes.height) * sizes.width > kMostPixels) return false;
  return bytes_of_image(sizes.height, sizes.width, std::max(sizes.channels, sizes.filters) / kChunk) <=
         kMostStageBytes;
}

cudaError_t launch_image_forward(const ConvArgs& args, cudaStream_t stream) {
  return image_conv::launch_product<false>(args, stream);
}

cudaError_t launch_image_backward_data(const ConvArgs& args, cudaStream_t stream) {
  return image_conv::launch_product<true>(args, stream);
}

}  // namespace espalier::lanes
