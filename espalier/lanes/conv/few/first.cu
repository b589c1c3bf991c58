// The first convolution of a network on colour images: 3x3, stride 1, a padding of 1, three channels; 8, 16
// or 32 filters.
//
// A block takes one image of a lane at a time. The 27 values of a window become four chunks of eight, in two
// planes of shared memory that fragments are loaded from: plane `rows` has at every pixel the first eight of
// the nine values of its row (left, own and right pixel, three channels each), so a window reads it at three
// rows; plane `rest` has the ninth of the three rows. So a product over 27 values takes two steps of 16. Rows
// above and below an image are zeros. While one image is worked on, the next one is copied as it lies in
// memory.
//
// Thread mapping as in image.cu and image_weight.cu. Deterministic: a sum's order depends on the lane's shape
// alone.
#include "espalier/lanes/conv/few/image.cuh"

namespace espalier::lanes {
namespace first_conv {
namespace {

using image_conv::kChunk;
using image_conv::kThreads;
using image_conv::kWarp;
using image_conv::kWarps;

constexpr int kChannels = kFirstChannels, kRowValues = 3 * kChannels, kDepth = 3 * kRowValues;
constexpr int kChunks = 4;  // three rows, and the rest

// Where the parts of a block's shared memory begin, in bytes.
struct Layout {
  int32_t pixels;     // in an image
  int32_t raw_bytes;  // an image as it lies in memory, and 16 more bytes: chunks are read across its end
  int32_t rows, rest, raw;
  Divisor a_row;
};

Layout layout_of(int height, int width) {
  Layout layout;
  layout.pixels = height * width;
  layout.raw_bytes = (layout.pixels * kChannels * 2 + 15) / 16 * 16 + 32;
  layout.rows = 0;
  layout.rest = (height + 2) * width * 16;
  layout.raw = layout.rest + layout.pixels * 16;
  layout.a_row = Divisor(static_cast<uint32_t>(width));
  return layout;
}

int bytes_of(const Layout& layout) {
  return layout.raw + 2 * layout.raw_bytes;
}

// Which weight of a filter chunk q has at place i; negative: none, a zero.
__host__ __device__ constexpr int weight_at(int q, int i) {
  if (q < 3) return q * kRowValues + i;
  return i < 3 ? i * kRowValues + kChunk : -1;
}

// Begins to copy an image, 16 bytes in front of which stay zeros.
template <class T>
__device__ void fetch_image(const Layout& layout, const T* from, uint8_t* to) {
  const int values = layout.pixels * kChannels;
  if (values % kChunk == 0) {
    for (int c = threadIdx.x; c < values / kChunk; c += kThreads)
      copy_chunk(to + 16 + c * 16, from + c * kChunk, true);
  } else {  // its neighbours do not begin on 16 bytes
    for (int i = threadIdx.x; i < values; i += kThreads) reinterpret_cast<T*>(to + 16)[i] = from[i];
  }
}

// From an image as it lies in memory to the planes. raw: 16 bytes, then the image.
__device__ inline void spread_image(const Layout& layout, int height, int width, const uint8_t* raw,
                                    uint8_t* shared) {
  const auto* const values = reinterpret_cast<const uint16_t*>(raw + 16);
  for (int pixel = threadIdx.x; pixel < layout.pixels; pixel += kThreads) {
    const int y = static_cast<int>(layout.a_row.quotient(static_cast<uint32_t>(pixel))),
              x = pixel - y * width;
    // Eight values from the left pixel's first on, which begins on 4 bytes at every second pixel.
    const int byte = 16 + (pixel - 1) * kChannels * 2;
    const auto* const words = reinterpret_cast<const uint32_t*>(raw + (byte & ~3));
    const int shift = (byte & 2) * 8;
    uint32_t word[5], eight[4];
#pragma unroll
    for (int i = 0; i < 5; ++i) word[i] = words[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) eight[i] = __funnelshift_r(word[i], word[i + 1], shift);
    if (x == 0) {  // three zeros first
      eight[0] = 0;
      eight[1] &= 0xffff0000u;
    }
    const bool is_last = x == width - 1;
    if (is_last) eight[3] = 0;
    *reinterpret_cast<uint4*>(shared + layout.rows + (pixel + width) * 16) =
        make_uint4(eight[0], eight[1], eight[2], eight[3]);
    const auto ninth = [&](int row) -> uint32_t {
      if (is_last || row < 0 || row >= height) return 0;
      return values[((row * width) + x + 1) * kChannels + 2];
    };
    *reinterpret_cast<uint4*>(shared + layout.rest + pixel * 16) =
        make_uint4(ninth(y - 1) | ninth(y) << 16, ninth(y + 1), 0, 0);
  }
}

// Where chunk q of the window of pixel 0 lies, in bytes: other pixels' are 16 bytes apart.
__device__ inline int offset_of(const Layout& layout, int width, int q) {
  return q < 3 ? layout.rows + q * width * 16 : layout.rest;
}

// Zeros above and below the image, and around it as it lies in memory.
__device__ inline void clear(const Layout& layout, int height, int width, uint8_t* shared) {
  for (int i = threadIdx.x; i < width; i += kThreads)
    for (const int row : {0, height + 1})
      *reinterpret_cast<uint4*>(shared + layout.rows + (row * width + i) * 16) = make_uint4(0, 0, 0, 0);
  image_conv::clear(shared + layout.raw, 2 * layout.raw_bytes);
}

// A block's images, one after the other: `work(image)` finds each spread out.
template <class T, class Work>
__device__ void each_image(const ConvSizes& sizes, const Layout& layout, const T* lane_images, int first,
                           int count, uint8_t* shared, const Work& work) {
  const int64_t image_values = static_cast<int64_t>(layout.pixels) * kChannels;
  const auto fetch = [&](int turn) {
    if (turn < count && first + turn < sizes.batch)
      fetch_image(layout, lane_images + (first + turn) * image_values,
                  shared + layout.raw + turn % 2 * layout.raw_bytes);
    commit_copies();
  };
  clear(layout, sizes.height, sizes.width, shared);
  __syncthreads();
  fetch(0);
  for (int turn = 0; turn < count && first + turn < sizes.batch; ++turn) {
    wait_copies<0>();
    __syncthreads();
    fetch(turn + 1);
    spread_image(layout, sizes.height, sizes.width, shared + layout.raw + turn % 2 * layout.raw_bytes,
                 shared);
    __syncthreads();
    work(first + turn);
  }
  wait_copies<0>();
}

// Two weights of a chunk, for one filter.
template <class T>
__device__ inline uint32_t two_weights(const T* filter, int q, int i) {
  const auto at = [&](int place) -> uint32_t {
    const int weight = weight_at(q, place);
    return weight < 0 ? 0u : reinterpret_cast<const uint16_t*>(filter)[weight];
  };
  return at(i) | at(i + 1) << 16;
}

// blockIdx: part of the images, lane.
template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(ConvSizes sizes, Layout layout, int images_a_block, Stack in, Stack weight, Stack out,
                   const float* bias, int64_t bias_stride, const int64_t* entries) {
  constexpr int kColumns = kTiles * 8;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.y;
  if (entries != nullptr && entries[lane] < 0) return;
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  const T* const filters = static_cast<const T*>(weight.data) + lane * weight.lane_stride;
  uint32_t b[kChunks][kTiles];
  const int column_in_tile = in_warp / 4, pair = in_warp % 4 * 2;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int column = column_in_tile / 2 * (2 * kTiles) + 2 * j + column_in_tile % 2;
#pragma unroll
    for (int q = 0; q < kChunks; ++q) b[q][j] = two_weights(filters + column * kDepth, q, pair);
  }
  const uint32_t base = shared_address(shared);
  uint32_t from[2];
#pragma unroll
  for (int step = 0; step < 2; ++step)
    from[step] = base + offset_of(layout, sizes.width, step * 2 + in_warp / 16);
  const int own_column = in_warp % 4 * 2 * kTiles;
  const float* const own_bias = bias == nullptr ? nullptr : bias + lane * bias_stride + own_column;
  T* const written = static_cast<T*>(out.data) + lane * out.lane_stride;
  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  each_image(sizes, layout, read, blockIdx.x * images_a_block, images_a_block, shared, [&](int image) {
    T* const to = written + static_cast<int64_t>(image) * layout.pixels * kColumns + own_column;
#pragma unroll 2
    for (int first = warp * 16; first < layout.pixels; first += kWarps * 16) {
      const int pixel = min(first + in_warp % 16, layout.pixels - 1);
      float sums[kTiles][4] = {};
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        uint32_t a[4];
        load_matrices(a, from[step] + pixel * 16);
#pragma unroll
        for (int j = 0; j < kTiles; ++j) multiply_add<T>(sums[j], a, b[step * 2][j], b[step * 2 + 1][j]);
      }
      const int row = first + in_warp / 4;
      if (row < layout.pixels)
        image_conv::store_row<T, kTiles>(to + static_cast<int64_t>(row) * kColumns, sums, 0, own_bias);
      if (row + 8 < layout.pixels)
        image_conv::store_row<T, kTiles>(to + static_cast<int64_t>(row + 8) * kColumns, sums, 1, own_bias);
    }
  });
}

// The gradients of some consecutive pixels of an image on their way from global memory to a warp's own part
// of shared memory, zeros where there is no pixel. A warp has several under way at once, the first of the
// next image among them: one at a time it would wait for every one.
template <int kTiles>
struct GradientSpan {
  static constexpr int kPixels = kTiles == 1 ? 32 : 16;
  static constexpr int kLoads = kPixels * kTiles / kWarp;  // chunks of a thread
  static constexpr int kAhead = kTiles < 4 ? 4 : 2;
  static constexpr int kBytes = kPixels * kTiles * 16;
  uint4 chunk[kLoads];

  // image: [pixels][filters], or nullptr: none
  template <class T>
  __device__ __forceinline__ void load(const T* image, int first, int pixels, int in_warp) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int c = in_warp + i * kWarp;
      const bool valid = image != nullptr && first + c / kTiles < pixels;
      chunk[i] = valid ? *reinterpret_cast<const uint4*>(image + static_cast<int64_t>(first) * (kTiles * 8) +
                                                         c * kChunk)
                       : make_uint4(0, 0, 0, 0);
    }
  }
  // As planes of kPixels chunks.
  __device__ __forceinline__ void store(uint8_t* tile, int in_warp) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int c = in_warp + i * kWarp;
      *reinterpret_cast<uint4*>(tile + (c % kTiles * kPixels + c / kTiles) * 16) = chunk[i];
    }
  }
};

// The weights' gradient: rows of the product are the four chunks, columns the filters.
template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads)
    weight_kernel(ConvSizes sizes, Layout layout, int images_a_part, Stack in, Stack grad, float* partial,
                  const int64_t* entries) {
  constexpr int kColumns = kTiles * 8;
  extern __shared__ __align__(16) uint8_t shared[];
  const int lane = blockIdx.y;
  if (entries != nullptr && entries[lane] < 0) return;
  const int warp = threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  const uint32_t base = shared_address(shared);
  uint32_t from[2];
#pragma unroll
  for (int m = 0; m < 2; ++m) from[m] = base + offset_of(layout, sizes.width, m * 2 + in_warp / 8 % 2);
  const T* const read = static_cast<const T*>(in.data) + lane * in.lane_stride;
  const T* const grads = static_cast<const T*>(grad.data) + lane * grad.lane_stride;
  using Span = GradientSpan<kTiles>;
  // A warp's own gradients, two spans of pixels, as planes.
  uint8_t* const own = shared + layout.raw + 2 * layout.raw_bytes + warp * 2 * Span::kBytes;
  const int first_image = blockIdx.x * images_a_part,
            last_image = min(first_image + images_a_part, sizes.batch) - 1;
  // Spans of an image, those that no warp has included, so that every image begins with ahead[0].
  const int spans = (layout.pixels + kWarps * Span::kPixels - 1) / (kWarps * Span::kPixels);
  const int padded_spans = (spans + Span::kAhead - 1) / Span::kAhead * Span::kAhead;
  Span ahead[Span::kAhead];
  const auto first_pixel = [&](int span) { return (span * kWarps + warp) * Span::kPixels; };
  const auto load_ahead = [&](Span& to, int image, int span) {
    to.load(image > last_image ? nullptr : grads + static_cast<int64_t>(image) * layout.pixels * kColumns,
            first_pixel(span), layout.pixels, in_warp);
  };
#pragma unroll
  for (int i = 0; i < Span::kAhead; ++i) load_ahead(ahead[i], first_image, i);
  int turn = 0;
  float sums[2][kTiles][4] = {};
  each_image(sizes, layout, read, first_image, images_a_part, shared, [&](int image) {
    for (int group = 0; group < padded_spans; group += Span::kAhead) {
      const bool is_last = group + Span::kAhead == padded_spans;
#pragma unroll
      for (int i = 0; i < Span::kAhead; ++i) {
        const int first = first_pixel(group + i);
        const bool has_pixels = first < layout.pixels;
        uint8_t* const tile = own + turn * Span::kBytes;
        if (has_pixels) ahead[i].store(tile, in_warp);
        load_ahead(ahead[i], is_last ? image + 1 : image, is_last ? i : group + Span::kAhead + i);
        if (!has_pixels) continue;
        __syncwarp();
        turn ^= 1;
#pragma unroll
        for (int part = 0; part < Span::kPixels; part += 16) {
          uint32_t b[kTiles][2];
#pragma unroll
          for (int n = 0; n < kTiles; ++n)
            load_two_matrices_transposed(
                b[n], shared_address(tile) + (n * Span::kPixels + part + in_warp % 16) * 16);
          const int pixel = min(first + part + in_warp % 8 + in_warp / 16 * 8, layout.pixels - 1);
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            uint32_t a[4];
            load_matrices_transposed(a, from[m] + pixel * 16);
#pragma unroll
            for (int n = 0; n < kTiles; ++n) multiply_add<T>(sums[m][n], a, b[n][0], b[n][1]);
          }
        }
      }
    }
  });

  // The warps' sums, added up in order.
  constexpr int kOwn = 2 * kTiles * 4;
  float* const all = reinterpret_cast<float*>(shared);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    all[i * kThreads + threadIdx.x] = sums[i / (kTiles * 4)][i / 4 % kTiles][i % 4];
  __syncthreads();
  float* const to = partial + (static_cast<int64_t>(lane) * gridDim.x + blockIdx.x) * (kColumns * kDepth);
  const int row = in_warp / 4, column = in_warp % 4 * 2;
  for (int i = warp; i < kOwn; i += kWarps) {
    float sum = 0;
    for (int other = 0; other < kWarps; ++other) sum += all[i * kThreads + other * kWarp + in_warp];
    const int m = i / (kTiles * 4), n = i / 4 % kTiles, half = i % 4 / 2;
    const int place = weight_at(m * 2 + half, row);
    if (place >= 0) to[(n * 8 + column + i % 2) * kDepth + place] = sum;
  }
}

// Allowed to every launch, whatever it takes itself, so that one that was captured keeps what it needs.
constexpr int kMostBytes = 64 << 10;
constexpr int kWantedBlocks = 528;  // four on each of an H200's multiprocessors
constexpr int kMostImages = 8;
constexpr int kPixelsAPart = 8192;
constexpr int kMostParts = 256;

int weight_bytes(const Layout& layout, int tiles) {
  const int span = std::max(tiles, 2) * 16 * 16;
  return std::max(bytes_of(layout) + kWarps * 2 * span, 2 * tiles * 4 * kThreads * 4);
}

int images_a_part_of(const ConvSizes& sizes) {
  const int64_t pixels = static_cast<int64_t>(sizes.batch) * sizes.height * sizes.width;
  const auto parts = static_cast<int>(std::clamp<int64_t>(pixels / kPixelsAPart, 1, kMostParts));
  return (sizes.batch + parts - 1) / parts;
}

template <class T, int kTiles>
cudaError_t launch_forward(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const Layout layout = layout_of(sizes.height, sizes.width);
  const auto kernel = forward_kernel<T, kTiles>;
  const int bytes = bytes_of(layout);
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes))
    return error;
  const int images_a_block = static_cast<int>(
      std::clamp<int64_t>(static_cast<int64_t>(sizes.batch) * sizes.lanes / kWantedBlocks, 1, kMostImages));
  const dim3 grid(static_cast<unsigned>((sizes.batch + images_a_block - 1) / images_a_block),
                  static_cast<unsigned>(sizes.lanes));
  kernel<<<grid, kThreads, bytes, stream>>>(sizes, layout, images_a_block, args.x, args.weight, args.out,
                                            args.bias, args.bias_stride, args.entries);
  return cudaGetLastError();
}

template <class T, int kTiles>
cudaError_t launch_weight(const ConvArgs& args, cudaStream_t stream) {
  const ConvSizes& sizes = args.sizes;
  const Layout layout = layout_of(sizes.height, sizes.width);
  const auto kernel = weight_kernel<T, kTiles>;
  const int bytes = weight_bytes(layout, kTiles);
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes))
    return error;
  const int images_a_part = images_a_part_of(sizes);
  const dim3 grid(static_cast<unsigned>((sizes.batch + images_a_part - 1) / images_a_part),
                  static_cast<unsigned>(sizes.lanes));
  kernel<<<grid, kThreads, bytes, stream>>>(sizes, layout, images_a_part, args.x, args.out, args.partial,
                                            args.entries);
  return cudaGetLastError();
}

}  // namespace
}  // namespace first_conv

bool takes_first(const ConvSizes& sizes) {
  using namespace first_conv;
  constexpr int64_t kMostPixels = 1 << 16;  // long before an image's bytes are counted in 32 bits
  if (sizes.kernel != 3 || sizes.stride != 1 || sizes.padding != 1) return false;
  if (sizes.channels != kChannels || !is_few(sizes.filters)) return false;
  if (static_cast<int64_t>(sizes.height) * sizes.width > kMostPixels) return false;
  return weight_bytes(layout_of(sizes.height, sizes.width), sizes.filters / 8) <= kMostBytes;
}

cudaError_t launch_first_forward(const ConvArgs& args, cudaStream_t stream) {
  using namespace first_conv;
  return image_conv::for_narrow(args.type, [&](auto value) {
    return image_conv::for_few(args.sizes.filters, [&](auto tiles) {
      return launch_forward<decltype(value), tiles()>(args, stream);
    });
  });
}

cudaError_t launch_first_backward_weight(const ConvArgs& args, cudaStream_t stream) {
  using namespace first_conv;
  return image_conv::for_narrow(args.type, [&](auto value) {
    return image_conv::for_few(args.sizes.filters, [&](auto tiles) {
      return launch_weight<decltype(value), tiles()>(args, stream);
    });
  });
}

int first_weight_parts(const ConvSizes& sizes) {
  const int each = first_conv::images_a_part_of(sizes);
  return (sizes.batch + each - 1) / each;
}

}  // namespace espalier::lanes
