// Convolutions with filters of one pixel, stride 1 and no padding, of 8, 16 or 32 channels and filters: one
// product per lane, whose rows are pixels.
//
// Forward and data gradient: a warp does 16 pixels at a time. Its first factor comes straight from global
// memory: which channel stands at which place of the sum is free as long as both factors agree, so a thread
// takes consecutive ones; columns are dealt out as in image.cu. Nothing passes through shared memory. Weight
// gradient: the sum goes over pixels, so both factors are loaded transposed, through a tile of shared memory
// of the warp's own. Deterministic: a sum's order depends on the lane's shape alone.
#include "espalier/lanes/conv/few/image.cuh"

namespace espalier::lanes {
namespace point_conv {
namespace {

using image_conv::for_few;
using image_conv::for_narrow;
using image_conv::kChunk;
using image_conv::kThreads;
using image_conv::kWarp;
using image_conv::kWarps;

// A thread's share of a row of kPlanes * 8 values: so many words of two, consecutive.
template <int kPlanes>
struct alignas(kPlanes * 4) RowShare {
  uint32_t word[kPlanes];
};

// The weights as second factors: word w of a thread's share of a row, for every tile of columns.
template <class T, int kPlanes, int kTiles, bool kDataGrad>
struct Filters {
  uint32_t b[kPlanes][kTiles];

  // weight: the lane's, [K,C].
  __device__ Filters(const T* weight, int channels, int in_warp) {
    const int column_in_tile = in_warp / 4, first = in_warp % 4 * 2 * kPlanes;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int column = column_in_tile / 2 * (2 * kTiles) + 2 * j + column_in_tile % 2;
#pragma unroll
      for (int w = 0; w < kPlanes; ++w) {
        if constexpr (kDataGrad) {  // rows have filters, the column is a channel
          const T* const from = weight + (first + 2 * w) * channels + column;
          b[w][j] = *reinterpret_cast<const uint16_t*>(from) |
                    static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(from + channels)) << 16;
        } else {
          b[w][j] = *reinterpret_cast<const uint32_t*>(weight + column * channels + first + 2 * w);
        }
      }
    }
  }
};

// blockIdx: part of the pixels, lane.
template <class T, int kPlanes, int kTiles, bool kDataGrad>
__global__ void __launch_bounds__(kThreads)
    product_kernel(ConvSizes sizes, int pixels, Stack in, Stack weight, Stack out, const float* bias,
                   int64_t bias_stride, const int64_t* entries) {
  constexpr int kRead = kPlanes * kChunk, kColumns = kTiles * 8;
  constexpr int kAtOnce = kPlanes == 4 ? 2 : 4;  // tiles of pixels whose loads are under way together
  const int lane = blockIdx.y;
  if (entries != nullptr && entries[lane] < 0) return;
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  const Filters<T, kPlanes, kTiles, kDataGrad> filters(
      static_cast<const T*>(weight.data) + lane * weight.lane_stride, sizes.channels, in_warp);
  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride + in_warp % 4 * 2 * kPlanes;
  const int own_column = in_warp % 4 * 2 * kTiles;
  T* const written = static_cast<T*>(out.data) + lane * out.lane_stride + own_column;
  const float* const own_bias = bias == nullptr ? nullptr : bias + lane * bias_stride + own_column;
  const int step = static_cast<int>(gridDim.x) * kWarps * kAtOnce * 16;
  for (int first = (static_cast<int>(blockIdx.x) * kWarps + warp) * kAtOnce * 16; first < pixels;
       first += step) {
    RowShare<kPlanes> rows[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = min(first + i * 16 + half * 8 + in_warp / 4, pixels - 1);
        rows[i][half] = *reinterpret_cast<const RowShare<kPlanes>*>(read + static_cast<int64_t>(row) * kRead);
      }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float sums[kTiles][4] = {};
      if constexpr (kPlanes == 1) {
        const uint32_t a[2] = {rows[i][0].word[0], rows[i][1].word[0]};
#pragma unroll
        for (int j = 0; j < kTiles; ++j) multiply_add_half<T>(sums[j], a, filters.b[0][j]);
      } else {
#pragma unroll
        for (int w = 0; w < kPlanes; w += 2) {
          const uint32_t a[4] = {rows[i][0].word[w], rows[i][1].word[w], rows[i][0].word[w + 1],
                                 rows[i][1].word[w + 1]};
#pragma unroll
          for (int j = 0; j < kTiles; ++j) multiply_add<T>(sums[j], a, filters.b[w][j], filters.b[w + 1][j]);
        }
      }
      const int row = first + i * 16 + in_warp / 4;
      if (row < pixels)
        image_conv::store_row<T, kTiles>(written + static_cast<int64_t>(row) * kColumns, sums, 0, own_bias);
      if (row + 8 < pixels)
        image_conv::store_row<T, kTiles>(written + static_cast<int64_t>(row + 8) * kColumns, sums, 1,
                                         own_bias);
    }
  }
}

constexpr int kTilePixels = 16;  // that a warp takes at a time

// blockIdx: part of the pixels, lane. Rows of the product are channels, columns filters.
template <class T, int kPlanes, int kGradPlanes>
__global__ void __launch_bounds__(kThreads) weight_kernel(int pixels, int pixels_a_part, Stack in, Stack grad,
                                                          float* partial, const int64_t* entries) {
  constexpr int kRowTiles = (kPlanes + 1) / 2;
  constexpr int kChunks = kTilePixels * (kPlanes + kGradPlanes);  // in a tile, those of x first
  constexpr int kCopies = (kChunks + kWarp - 1) / kWarp;
  __shared__ __align__(16) uint8_t tiles[kWarps][kChunks * 16];
  const int lane = blockIdx.y;
  if (entries != nullptr && entries[lane] < 0) return;
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  const T* const grads = static_cast<const T*>(grad.data) + lane * grad.lane_stride;
  const int begin = static_cast<int>(blockIdx.x) * pixels_a_part, end = min(pixels, begin + pixels_a_part);
  uint4 ahead[kCopies];
  const auto look_ahead = [&](int first) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int c = in_warp + i * kWarp;
      const bool is_grad = c >= kTilePixels * kPlanes;
      const int own = is_grad ? c - kTilePixels * kPlanes : c, planes = is_grad ? kGradPlanes : kPlanes;
      const bool valid = c < kChunks && first + own / planes < end;
      ahead[i] =
          valid ? *reinterpret_cast<const uint4*>(
                      (is_grad ? grads : read) + static_cast<int64_t>(first) * planes * kChunk + own * kChunk)
                : make_uint4(0, 0, 0, 0);
    }
  };
  uint8_t* const tile = tiles[warp];
  const uint32_t from = shared_address(tile), from_grads = from + kTilePixels * kPlanes * 16;
  float sums[kRowTiles][kGradPlanes][4] = {};
  look_ahead(begin + warp * kTilePixels);
  for (int first = begin + warp * kTilePixels; first < end; first += kWarps * kTilePixels) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int c = in_warp + i * kWarp;
      const bool is_grad = c >= kTilePixels * kPlanes;
      const int own = is_grad ? c - kTilePixels * kPlanes : c, planes = is_grad ? kGradPlanes : kPlanes;
      if (c < kChunks)
        *reinterpret_cast<uint4*>(tile + (is_grad ? kTilePixels * kPlanes * 16 : 0) +
                                  (own % planes * kTilePixels + own / planes) * 16) = ahead[i];
    }
    __syncwarp();
    look_ahead(first + kWarps * kTilePixels);
    uint32_t b[kGradPlanes][2];
#pragma unroll
    for (int n = 0; n < kGradPlanes; ++n)
      load_two_matrices_transposed(b[n], from_grads + (n * kTilePixels + in_warp % 16) * 16);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      uint32_t a[4];
      const int pixel = in_warp % 8 + in_warp / 16 * 8, plane = min(m * 2 + in_warp / 8 % 2, kPlanes - 1);
      load_matrices_transposed(a, from + (plane * kTilePixels + pixel) * 16);
#pragma unroll
      for (int n = 0; n < kGradPlanes; ++n) multiply_add<T>(sums[m][n], a, b[n][0], b[n][1]);
    }
  }

  // The warps' sums, one after the other, each where the first lies.
  constexpr int kOwn = kRowTiles * kGradPlanes * 4;
  static_assert(kOwn * kWarp * 4 <= sizeof(tiles));
  float* const handed = reinterpret_cast<float*>(tiles) + in_warp;
  for (int other = 1; other < kWarps; ++other) {
    __syncthreads();
    if (warp == other)
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        handed[i * kWarp] = sums[i / (kGradPlanes * 4)][i / 4 % kGradPlanes][i % 4];
    __syncthreads();
    if (warp == 0)
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        sums[i / (kGradPlanes * 4)][i / 4 % kGradPlanes][i % 4] += handed[i * kWarp];
  }
  if (warp != 0) return;
  constexpr int kRead = kPlanes * kChunk;
  float* const to =
      partial + (static_cast<int64_t>(lane) * gridDim.x + blockIdx.x) * (kGradPlanes * kChunk * kRead);
  const int row = in_warp / 4, column = in_warp % 4 * 2;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int m = i / (kGradPlanes * 4), n = i / 4 % kGradPlanes, channel = m * 16 + i % 4 / 2 * 8 + row;
    if (channel < kRead) to[(n * kChunk + column + i % 2) * kRead + channel] = sums[m][n][i % 4];
  }
}

constexpr int kWantedBlocks = 1056;  // eight on each of an H200's multiprocessors
constexpr int kPixelsAPart = 512;    // four turns of a block's warps
constexpr int kMostParts = 256;

int pixels_of(const ConvSizes& sizes) {
  return sizes.batch * sizes.height * sizes.width;
}

int parts_of(const ConvSizes& sizes) {
  return std::clamp(pixels_of(sizes) / kPixelsAPart, 1, kMostParts);
}

template <class T, int kPlanes, int kTiles, bool kDataGrad>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const int pixels = pixels_of(sizes), a_block = kWarps * 16 * (kPlanes == 4 ? 2 : 4);
  const int blocks =
      std::clamp((pixels + a_block - 1) / a_block, 1, std::max(1, kWantedBlocks / sizes.lanes));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(sizes.lanes));
  product_kernel<T, kPlanes, kTiles, kDataGrad><<<grid, kThreads, 0, stream>>>(
      sizes, pixels, kDataGrad ? args.out : args.x, args.weight, kDataGrad ? args.x : args.out, args.bias,
      args.bias_stride, args.entries);
  return cudaGetLastError();
}

template <bool kDataGrad>
cudaError_t launch_product(const ConvArgs& args, cudaStream_t stream) {
  const int read = kDataGrad ? args.sizes.filters : args.sizes.channels;
  const int written = kDataGrad ? args.sizes.channels : args.sizes.filters;
  return for_narrow(args.type, [&](auto value) {
    return for_few(read, [&](auto planes) {
      return for_few(written, [&](auto tiles) {
        return launch_product<decltype(value), planes(), tiles(), kDataGrad>(args, stream);
      });
    });
  });
}

template <class T, int kPlanes, int kGradPlanes>
cudaError_t launch_weight(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const int pixels = pixels_of(sizes), parts = parts_of(sizes);
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(sizes.lanes));
  weight_kernel<T, kPlanes, kGradPlanes><<<grid, kThreads, 0, stream>>>(
      pixels, (pixels + parts - 1) / parts, args.x, args.out, args.partial, args.entries);
  return cudaGetLastError();
}

}  // namespace
}  // namespace point_conv

bool takes_point(const ConvSizes& sizes) {
  using namespace point_conv;
  return sizes.kernel == 1 && sizes.stride == 1 && sizes.padding == 0 && is_few(sizes.channels) &&
         is_few(sizes.filters);
}

cudaError_t launch_point_forward(const ConvArgs& args, cudaStream_t stream) {
  return point_conv::launch_product<false>(args, stream);
}

cudaError_t launch_point_backward_data(const ConvArgs& args, cudaStream_t stream) {
  return point_conv::launch_product<true>(args, stream);
}

cudaError_t launch_point_backward_weight(const ConvArgs& args, cudaStream_t stream) {
  using namespace point_conv;
  return for_narrow(args.type, [&](auto value) {
    return for_few(args.sizes.channels, [&](auto planes) {
      return for_few(args.sizes.filters, [&](auto grad_planes) {
        return launch_weight<decltype(value), planes(), grad_planes()>(args, stream);
      });
    });
  });
}

int point_weight_parts(const ConvSizes& sizes) {
  return point_conv::parts_of(sizes);
}

}  // namespace espalier::lanes
