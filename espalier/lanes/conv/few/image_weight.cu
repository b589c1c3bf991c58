// Weight gradient of image.cuh: sums over parts of the batch; dispatch.cu adds them up.
//
// grad_weight[filter, k] = sum over pixels of grad[pixel, filter] a[pixel, k]: rows of the product are k =
// (tap, channel), two chunks of them at a time, columns are filters, and the sum goes over 16 pixels at a
// time. Both factors lie pixel by pixel in shared memory and are loaded transposed.
//
// Thread mapping: kSplitM * kSplitN warps share rows and columns out, so that sums stay in registers; the
// others take other pixels, and their sums are added up at the end, in order. blockIdx: part of the batch,
// lane.
#include "espalier/lanes/conv/few/image.cuh"

namespace espalier::lanes {
namespace image_conv {
namespace {

// kPlanes, kGradPlanes: eights of channels and of filters.
template <int kPlanes, int kGradPlanes>
struct WeightShape {
  static constexpr int kChunks = kTaps * kPlanes;
  static constexpr int kRowTiles = (kChunks + 1) / 2;
  static constexpr int kSums = kRowTiles * kGradPlanes * 4;  // a thread's, were nothing shared out
  static constexpr int kMostSums = 80;
  static constexpr int kSplitM = kSums > 2 * kMostSums&& kRowTiles % 2 == 0 ? 2 : 1;
  static constexpr int kSplitN = kSums / kSplitM > kMostSums ? 2 : 1;
  static constexpr int kM = kRowTiles / kSplitM, kN = kGradPlanes / kSplitN;
  static constexpr int kSharers = kWarps / (kSplitM * kSplitN);  // who share the pixels out
  static_assert(kM * kN * 4 <= kMostSums && kN * kSplitN == kGradPlanes && kM * kSplitM == kRowTiles);
};

// The gradients of a group, planes of `rows` chunks, zeros where there is no pixel.
template <class T, int kGradPlanes>
__device__ void fetch_grads(const T* from, int pixels, int rows, uint8_t* to) {
  for (int c = threadIdx.x; c < rows * kGradPlanes; c += kThreads) {
    const int pixel = c / kGradPlanes, plane = c % kGradPlanes;
    copy_chunk(to + (plane * rows + pixel) * 16,
               from + (pixel < pixels ? static_cast<int64_t>(c) * kChunk : 0), pixel < pixels);
  }
}

// What a warp does of a group of images: some tiles of rows and some planes of gradients, of the pixels that
// are its own.
template <class Shape>
struct WarpPart {
  int in_warp, first_tile, first_plane, sharer;

  __device__ WarpPart() {
    const int warp = threadIdx.x / kWarp;
    in_warp = threadIdx.x % kWarp;
    first_tile = warp % Shape::kSplitM * Shape::kM;
    first_plane = warp / Shape::kSplitM % Shape::kSplitN * Shape::kN;
    sharer = warp / (Shape::kSplitM * Shape::kSplitN);
  }
};

// The gradients of 16 pixels: planes of `rows` chunks, from `from` on.
template <int kN>
__device__ __forceinline__ void load_grads(uint32_t (&b)[kN][2], uint32_t from, int first_plane, int rows,
                                           int first, int in_warp) {
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    const uint32_t row = from + ((first_plane + n) * rows + first + in_warp % 16) * 16;
    if constexpr (kN == 1) {
      load_two_matrices_transposed(b[0], row);
    } else {
      uint32_t both[4];
      load_matrices_transposed(both, row + in_warp / 16 * rows * 16);
      b[n][0] = both[0], b[n][1] = both[1], b[n + 1][0] = both[2], b[n + 1][1] = both[3];
    }
  }
}

// Adds the products of a warp's share of a group's pixels to its sums, 16 pixels at a time.
template <class T, class Shape, int kM, int kN>
__device__ __forceinline__ void multiply_group(const ConvSizes& sizes, const Stage& stage,
                                               const WarpPart<Shape>& warp, const int (&offsets)[kM],
                                               int pixels, int rows, uint32_t from, uint32_t from_grads,
                                               float (&sums)[kM][kN][4]) {
  const int in_warp = warp.in_warp;
  for (int first = warp.sharer * 16; first < pixels; first += Shape::kSharers * 16) {
    const int pixel = min(first + in_warp % 8 + in_warp / 16 * 8, pixels - 1);
    const uint32_t window = from + place_of(stage, sizes.width, pixel) * 16;
    uint32_t b[kN][2];
    load_grads(b, from_grads, warp.first_plane, rows, first, in_warp);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      uint32_t a[4];
      load_matrices_transposed(a, window + offsets[m]);
#pragma unroll
      for (int n = 0; n < kN; ++n) multiply_add<T>(sums[m][n], a, b[n][0], b[n][1]);
    }
  }
}

// The sharers' sums, added up in order: every thread takes some of the results. to: [filters][kDepth].
template <class Shape, int kM, int kN>
__device__ __forceinline__ void store_sums(const float (&sums)[kM][kN][4], float* all, float* to) {
  constexpr int kOwn = kM * kN * 4, kRow = Shape::kSplitM * Shape::kSplitN * kWarp;
  constexpr int kDepth = Shape::kChunks * kChunk;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) all[i * kThreads + threadIdx.x] = sums[i / (kN * 4)][i / 4 % kN][i % 4];
  __syncthreads();
  for (int result = threadIdx.x; result < kOwn * kRow; result += kThreads) {
    const int i = result / kRow, place = result % kRow;
    float sum = 0;
#pragma unroll
    for (int other = 0; other < Shape::kSharers; ++other) sum += all[i * kThreads + other * kRow + place];
    const int of_warp = place / kWarp, thread = place % kWarp;
    const int tile = of_warp % Shape::kSplitM * kM + i / (kN * 4), half = i % 4 / 2, chunk = tile * 2 + half;
    const int plane = of_warp / Shape::kSplitM * kN + i / 4 % kN;
    if (chunk < Shape::kChunks)
      to[(plane * kChunk + thread % 4 * 2 + i % 2) * kDepth + chunk * kChunk + thread / 4] = sum;
  }
}

template <class T, int kPlanes, int kGradPlanes>
__global__ void __launch_bounds__(kThreads, 2)
    weight_kernel(ConvSizes sizes, Stage stage, int rows, int stages, int groups_a_part, Stack in, Stack grad,
                  float* partial, const int64_t* entries) {
  using Shape = WeightShape<kPlanes, kGradPlanes>;
  constexpr int kM = Shape::kM, kN = Shape::kN;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.y;
  if (entries != nullptr && entries[lane] < 0) return;
  const int image_bytes = bytes_of(stage, kPlanes), stage_bytes = image_bytes + rows * kGradPlanes * 16;
  clear(shared, stages * stage_bytes);
  const WarpPart<Shape> warp;

  // A transposed fragment: eight pixels of a chunk, of the next chunk, then the next eight pixels of both.
  int offsets[kM];
#pragma unroll
  for (int m = 0; m < kM; ++m)
    offsets[m] =
        offset_of<kPlanes>(stage, min((warp.first_tile + m) * 2 + warp.in_warp / 8 % 2, Shape::kChunks - 1),
                           false) *
        16;

  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  const T* const grads = static_cast<const T*>(grad.data) + lane * grad.lane_stride;
  const int first_group = blockIdx.x * groups_a_part;
  const auto images_in = [&](int group) { return min(stage.images, sizes.batch - group * stage.images); };
  const auto fetch = [&](int turn) {
    const int group = first_group + turn;
    if (turn < groups_a_part && images_in(group) > 0) {
      const int64_t first_pixel = static_cast<int64_t>(group) * stage.images * stage.pixels;
      uint8_t* const to = shared + turn % stages * stage_bytes;
      fetch_images<T, kPlanes>(stage, sizes.width, read + first_pixel * (kPlanes * kChunk), images_in(group),
                               to);
      fetch_grads<T, kGradPlanes>(grads + first_pixel * (kGradPlanes * kChunk),
                                  images_in(group) * stage.pixels, rows, to + image_bytes);
    }
    commit_copies();
  };
  float sums[kM][kN][4] = {};
  __syncthreads();
  fetch(0);
  for (int turn = 0; turn < groups_a_part; ++turn) {
    const int images = images_in(first_group + turn);
    if (images <= 0) break;
    wait_copies<0>();
    __syncthreads();
    if (stages > 1) fetch(turn + 1);
    const uint32_t from = shared_address(shared + turn % stages * stage_bytes),
                   from_grads = from + image_bytes;
    multiply_group<T>(sizes, stage, warp, offsets, images * stage.pixels, rows, from, from_grads, sums);
    if (stages > 1) continue;
    __syncthreads();  // the only group that there is room for has been read
    fetch(turn + 1);
  }
  wait_copies<0>();
  __syncthreads();
  constexpr int kResults = kGradPlanes * kChunk * Shape::kChunks * kChunk;
  store_sums<Shape>(sums, reinterpret_cast<float*>(shared),
                    partial + (static_cast<int64_t>(lane) * gridDim.x + blockIdx.x) * kResults);
}

// Pixels of a part times channels and filters. A part has some groups of images, so that one is copied while
// another is used; more of them take longer, and fewer leave more sums than they pay for.
constexpr int64_t kValuesAPart = 32768;
constexpr int kMostParts = 256;
constexpr int kGroupBytes =
    14 << 10;  // smaller than forward: a part has several groups, one copied while another is used

Stage stage_of_part(const ConvSizes& sizes) {
  return stage_of(sizes.height, sizes.width, sizes.channels / kChunk, sizes.batch, kGroupBytes);
}

int groups_a_part_of(const ConvSizes& sizes, const Stage& stage) {
  const int groups = (sizes.batch + stage.images - 1) / stage.images;
  const int64_t pixels = static_cast<int64_t>(sizes.batch) * stage.pixels;
  const auto parts = static_cast<int>(
      std::clamp<int64_t>(pixels * (sizes.channels + sizes.filters) / kValuesAPart, 1, kMostParts));
  return (groups + parts - 1) / parts;
}

int parts_of(const ConvSizes& sizes, const Stage& stage) {
  const int groups = (sizes.batch + stage.images - 1) / stage.images, each = groups_a_part_of(sizes, stage);
  return (groups + each - 1) / each;
}

// What a block may have on this device: 227 KiB on Hopper, 99 on smaller cards.
cudaError_t read_most_bytes(int& bytes) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  return cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}

template <class T, int kPlanes, int kGradPlanes>
cudaError_t launch_weight(const ConvArgs& args, cudaStream_t stream) {
  using Shape = WeightShape<kPlanes, kGradPlanes>;
  const ConvSizes& sizes = args.sizes;
  const Stage stage = stage_of_part(sizes);
  const int rows = (stage.images * stage.pixels + 15) / 16 * 16;
  const auto kernel = weight_kernel<T, kPlanes, kGradPlanes>;
  const int staged = bytes_of(stage, kPlanes) + rows * kGradPlanes * 16;
  const int handed = Shape::kM * Shape::kN * 4 * kThreads * 4;
  int most_bytes = 0;
  if (const cudaError_t error = read_most_bytes(most_bytes)) return error;
  // Where two groups do not fit, the next is copied only once the one before was read: the same sums, later.
  const int stages = 2 * staged <= most_bytes ? 2 : 1;
  const int bytes = std::max(stages * staged, handed);
  // As much as there is, so that a launch that was captured keeps what it was allowed.
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes))
    return error;
  const dim3 grid(static_cast<unsigned>(parts_of(sizes, stage)), static_cast<unsigned>(sizes.lanes));
  kernel<<<grid, kThreads, bytes, stream>>>(sizes, stage, rows, stages, groups_a_part_of(sizes, stage),
                                            args.x, args.out, args.partial, args.entries);
  return cudaGetLastError();
}

}  // namespace
}  // namespace image_conv

cudaError_t launch_image_backward_weight(const ConvArgs& args, cudaStream_t stream) {
  using namespace image_conv;
  return for_narrow(args.type, [&](auto value) {
    return for_few(args.sizes.channels, [&](auto planes) {
      return for_few(args.sizes.filters, [&](auto grad_planes) {
        return launch_weight<decltype(value), planes(), grad_planes()>(args, stream);
      });
    });
  });
}

int image_weight_parts(const ConvSizes& sizes) {
  using namespace image_conv;
  return parts_of(sizes, stage_of_part(sizes));
}

}  // namespace espalier::lanes
