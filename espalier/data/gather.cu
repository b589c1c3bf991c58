// Gather, crop, flip, normalise and cast, for all lanes and fields in one launch.
//
// Work is cut into items: one tile of rows of one plane of one image. A block takes a few items of one field
// (blockIdx.y):
//   1. one thread an item evaluates the plan: which sample, and where it moved;
//   2. all threads copy the items' source rows, a contiguous range, into shared memory, 16 bytes at a time,
//      and the labels and masks are written meanwhile;
//   3. all threads write outputs, whole pixels read from shared memory at their displaced places.
// Shared memory makes every read of the dataset wide and once, so the same kernel serves pinned host memory.
// Tiles hold at most kTileBytes of source (one row where a row is longer): 32-bit offsets do inside a tile.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <algorithm>

#include "espalier/core/ignored_label.h"
#include "espalier/core/random/divisor.h"
#include "espalier/data/gather_kernel.h"

namespace espalier::data {
namespace {

constexpr int kThreads = 128;
// Two CIFAR images per block of 128 threads, twelve blocks per multiprocessor: small blocks, so that while
// some evaluate the plan others read and others write. 6 images per block of 256 threads took a sixth longer.
constexpr int kTileBytes = 6272;
constexpr int kMaxItems = 16;
constexpr int64_t kMaxSharedBytes = 227 * 1024;  // that a block may have, on the largest of today's devices
constexpr size_t kBytesWithoutAsking = 48 * 1024;
constexpr int kLineBytes = 16;
constexpr int kWarp = 32;
constexpr int kMaxGroupedPixel = 4;  // channels of a pixel that a group may have

struct Tiling {
  int32_t rows = 0;  // a tile has, the last of a plane maybe fewer
  int32_t tiles_per_plane = 0;
  int32_t tiles_per_image = 0;
  int32_t items_per_block = 0;
  int32_t slot_bytes = 0;  // shared memory per item
  int64_t num_items = 0;
  Divisor row_length;  // W * pixel
  Divisor pixel;
  Divisor lines;         // 16-byte lines per slot
  bool grouped = false;  // outputs are written in groups of whole pixels, else one by one
  Divisor units;         // such groups or values per tile
};

struct Tilings {
  Tiling field[kMaxFields];
};

// What a block knows of one item after step 1.
struct Item {
  int64_t source_byte;  // where the first source row that exists begins, in the field
  void* out;            // [rows, W, pixel]; nullptr: nothing is written, no label either
  int32_t source_bytes;
  int32_t first_row;  // the source row at source_byte
  int32_t end_row;    // one past the last source row in the tile
  int32_t row0;       // first output row
  int32_t rows;       // output rows
  int32_t plane;
  int32_t skew;  // bytes between the slot's begin and source_byte's place in it
  int32_t tile;  // within its image
  uint32_t lane;
  uint32_t in_lane;  // image of the lane's batch
  int64_t sample;
  Displacement moved;
  bool valid;
};

__host__ __device__ int bytes_of(ValueType type) {
  return type == ValueType::kU8 ? 1 : type == ValueType::kF32 ? 4 : 2;
}

__host__ __device__ int64_t row_bytes_of(const GatherField& field) {
  return int64_t{field.width} * field.pixel * bytes_of(field.type);
}

template <class Out>
__device__ Out cast(float value);
template <>
__device__ float cast<float>(float value) {
  return value;
}
template <>
__device__ __nv_bfloat16 cast<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __half cast<__half>(float value) {
  return __float2half_rn(value);
}

// Stored integers are normalised, stored floats already are.
__device__ float normalised(uint8_t value, float scale, float shift) {
  return __fmaf_rn(value, scale, shift);
}
__device__ float normalised(uint16_t value, float scale, float shift) {
  return __fmaf_rn(value, scale, shift);
}
__device__ float normalised(float value, float, float) {
  return value;
}
__device__ float normalised(__nv_bfloat16 value, float, float) {
  return __bfloat162float(value);
}

// Images are counted in 32 bits: a batch of 2^31 would not fit any memory.
template <class Out, bool kPerLane>
__device__ Item plan_item(const GatherArgs& args, int32_t f, const Tiling& tiling, int64_t index,
                          const LanePointers* pointers) {
  const GatherField& field = args.fields[f];
  Item item{};
  const auto image = static_cast<uint32_t>(index) / static_cast<uint32_t>(tiling.tiles_per_image);
  item.tile = static_cast<int32_t>(static_cast<uint32_t>(index) -
                                   image * static_cast<uint32_t>(tiling.tiles_per_image));
  item.lane = image / static_cast<uint32_t>(args.plan.batch);
  item.in_lane = image - item.lane * static_cast<uint32_t>(args.plan.batch);
  item.plane = item.tile / tiling.tiles_per_plane;
  item.row0 = (item.tile - item.plane * tiling.tiles_per_plane) * tiling.rows;
  item.rows = min(tiling.rows, field.height - item.row0);

  const int64_t lane_id = args.lane_ids[item.lane];
  const auto epoch = static_cast<uint64_t>(args.position ? args.position[0] : args.epoch);
  const int64_t batch_index = args.position ? args.position[1] : args.batch_index;
  const LaneRange range = lane_range(args.plan, lane_id, batch_index);
  item.valid = item.in_lane < range.count;

  if (item.valid) {
    item.sample = sample_at(args.plan, lane_id, epoch, range.begin + item.in_lane);
    item.moved = displacement(args.augmentation, epoch, item.sample);
    const int64_t row_bytes = row_bytes_of(field);
    item.first_row = min(max(item.row0 + item.moved.shift_y, 0), field.height);
    item.end_row = max(min(item.row0 + item.rows + item.moved.shift_y, field.height), item.first_row);
    item.source_byte =
        ((item.sample * field.planes + item.plane) * field.height + item.first_row) * row_bytes;
    item.source_bytes = static_cast<int32_t>((item.end_row - item.first_row) * row_bytes);
    const auto address = reinterpret_cast<uintptr_t>(field.values) + static_cast<uintptr_t>(item.source_byte);
    item.skew = static_cast<int32_t>(address % kLineBytes);
  }
  const int64_t first_value =
      ((int64_t{item.in_lane} * field.planes + item.plane) * field.height + item.row0) * field.width *
      field.pixel;
  if (!kPerLane) {
    item.out = static_cast<Out*>(field.out) + item.lane * field.lane_stride + first_value;
  } else if (item.in_lane < static_cast<uint32_t>(pointers->samples[item.lane])) {
    item.out = static_cast<Out*>(pointers->out[item.lane * (args.num_fields + 1) + f]) + first_value;
  }
  return item;
}

// The label and the mask of an image, by the block that has its first tile.
template <bool kPerLane>
__device__ void write_label(const GatherArgs& args, const Item& item, const LanePointers* pointers) {
  int64_t* labels =
      kPerLane ? static_cast<int64_t*>(pointers->out[item.lane * (args.num_fields + 1) + args.num_fields])
               : args.labels_out + item.lane * args.plan.batch;
  if (item.out != nullptr) labels[item.in_lane] = item.valid ? args.labels[item.sample] : kIgnoredLabel;
  if (args.mask_out) args.mask_out[item.lane * args.plan.batch + item.in_lane] = item.valid;
}

// Copies the items' source rows into their slots. Whole lines are copied where they lie inside the field; the
// bytes of a line that begins before the item's rows or ends after them are never used.
__device__ void load_items(const GatherField& field, const Tiling& tiling, int64_t field_bytes,
                           const Item* items, int num_items, uint8_t* slots) {
  const auto* values = static_cast<const uint8_t*>(field.values);
  const int lines = static_cast<int>(tiling.lines.divisor);
  for (int n = static_cast<int>(threadIdx.x); n < num_items * lines; n += kThreads) {
    const int i = static_cast<int>(tiling.lines.quotient(static_cast<uint32_t>(n)));
    const int line = n - i * lines;
    const Item& item = items[i];
    if (!item.valid || line * kLineBytes >= item.skew + item.source_bytes) continue;
    const int64_t at = item.source_byte - item.skew + int64_t{line} * kLineBytes;
    uint8_t* slot = slots + i * tiling.slot_bytes + line * kLineBytes;
    if (at >= 0 && at + kLineBytes <= field_bytes) {
      __pipeline_memcpy_async(slot, values + at, kLineBytes);
    } else {
      for (int b = 0; b < kLineBytes; ++b)
        if (at + b >= 0 && at + b < field_bytes) slot[b] = values[at + b];
    }
  }
}

// One item's tile in shared memory, and how outputs are read from it.
template <class In, class Out>
struct TileReader {
  const GatherField& field;
  const Item& item;
  const In* source;     // [end_row - first_row, W, pixel] shared
  const float* affine;  // [2, C] shared
  int32_t channels;
  int32_t row_length;

  // Output (row, x, channel of the pixel), any number of channels.
  __device__ Out read(int32_t row, int32_t x, int32_t channel_in_pixel) const {
    const int32_t y = item.row0 + row + item.moved.shift_y;
    const int32_t from_x = (item.moved.mirrored ? field.width - 1 - x : x) + item.moved.shift_x;
    const int32_t channel = item.plane + channel_in_pixel;  // one of the two is 0
    const float shift = affine[channels + channel];
    float value = shift;  // black: 0 * scale + shift
    if (y >= item.first_row && y < item.end_row && from_x >= 0 && from_x < field.width)
      value = normalised(source[(y - item.first_row) * row_length + from_x * field.pixel + channel_in_pixel],
                         affine[channel], shift);
    return cast<Out>(value);
  }
};

// kVector pixels of one row: kPixel outputs of 16 bytes each, whole pixels, so that channels are known to the
// compiler and the edge is looked for once per pixel.
template <class In, class Out, int kPixel>
__device__ void write_group(const TileReader<In, Out>& reader, int32_t row, int32_t x0, Out* out,
                            uint4* stage) {
  constexpr int kVector = kLineBytes / static_cast<int>(sizeof(Out));
  const Item& item = reader.item;
  const int32_t width = reader.field.width;
  const int32_t y = item.row0 + row + item.moved.shift_y;
  const bool row_inside = y >= item.first_row && y < item.end_row;
  const auto limit = static_cast<uint32_t>(row_inside ? width : 0);
  const In* from = reader.source + (row_inside ? (y - item.first_row) * reader.row_length : 0);
  const int32_t first = (item.moved.mirrored ? width - 1 - x0 : x0) + item.moved.shift_x;
  const int32_t step = item.moved.mirrored ? -1 : 1;
  float scale[kPixel], shift[kPixel];
#pragma unroll
  for (int c = 0; c < kPixel; ++c) {
    scale[c] = reader.affine[item.plane + c];
    shift[c] = reader.affine[reader.channels + item.plane + c];
  }
  alignas(kLineBytes) Out values[kVector * kPixel];
#pragma unroll
  for (int p = 0; p < kVector; ++p) {
    const int32_t x = first + step * p;
    const bool inside = static_cast<uint32_t>(x) < limit;
#pragma unroll
    for (int c = 0; c < kPixel; ++c) {
      float value = shift[c];
      if (inside) value = normalised(from[x * kPixel + c], scale[c], shift[c]);
      values[p * kPixel + c] = cast<Out>(value);
    }
  }
  const auto* vectors = reinterpret_cast<const uint4*>(values);
  if (kPixel == 1 || stage == nullptr) {
#pragma unroll
    for (int v = 0; v < kPixel; ++v) reinterpret_cast<uint4*>(out)[v] = vectors[v];
    return;
  }
  // Lane t holds vectors t * kPixel and on of the warp's; it stores t, 32 + t, ... instead.
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int v = 0; v < kPixel; ++v) stage[lane * kPixel + v] = vectors[v];
  __syncwarp();
  auto* warp_out = reinterpret_cast<uint4*>(out) - lane * kPixel;
#pragma unroll
  for (int v = 0; v < kPixel; ++v) warp_out[v * kWarp + lane] = stage[v * kWarp + lane];
  __syncwarp();
}

// Outputs one by one: for rows that are no whole number of vectors, many channels, or outputs that start
// anywhere.
template <class In, class Out>
__device__ void write_values(const TileReader<In, Out>& reader, const Tiling& tiling, int32_t begin,
                             int32_t count, Out* out) {
  const int32_t end = min(begin + count, reader.item.rows * reader.row_length);
  for (int32_t e = begin; e < end; ++e) {
    const uint32_t row = tiling.row_length.quotient(static_cast<uint32_t>(e));
    const uint32_t rest = static_cast<uint32_t>(e) - row * static_cast<uint32_t>(reader.row_length);
    const uint32_t x = tiling.pixel.quotient(rest);
    const auto channel = static_cast<int32_t>(rest - x * static_cast<uint32_t>(reader.field.pixel));
    *out++ = reader.item.valid ? reader.read(static_cast<int32_t>(row), static_cast<int32_t>(x), channel)
                               : cast<Out>(0.0f);
  }
}

template <class In, class Out>
__device__ void write_items(const GatherField& field, const Tiling& tiling, const Item* items, int num_items,
                            const uint8_t* slots, const float* affine, uint4* stages) {
  constexpr int kVector = kLineBytes / static_cast<int>(sizeof(Out));
  const int32_t row_length = static_cast<int32_t>(tiling.row_length.divisor);
  const int units = static_cast<int>(tiling.units.divisor);
  const int32_t unit = tiling.grouped ? kVector * field.pixel : 1;
  for (int n = static_cast<int>(threadIdx.x); n < num_items * units; n += kThreads) {
    const int i = static_cast<int>(tiling.units.quotient(static_cast<uint32_t>(n)));
    const Item& item = items[i];
    const int32_t begin = (n - i * units) * unit;
    if (item.out == nullptr || begin >= item.rows * row_length) continue;
    const TileReader<In, Out> reader{field,
                                     item,
                                     reinterpret_cast<const In*>(slots + i * tiling.slot_bytes + item.skew),
                                     affine,
                                     field.planes * field.pixel,
                                     row_length};
    Out* out = static_cast<Out*>(item.out) + begin;
    if (!tiling.grouped || !item.valid || reinterpret_cast<uintptr_t>(out) % kLineBytes != 0) {
      write_values(reader, tiling, begin, unit, out);
      continue;
    }
    const auto row = static_cast<int32_t>(tiling.row_length.quotient(static_cast<uint32_t>(begin)));
    const int32_t rest = begin - row * row_length;
    // A warp whose groups are neighbours of one item stores them together, 512 bytes at a time.
    const int warp_first = n - static_cast<int>(threadIdx.x) % kWarp;
    const int32_t item_units = item.rows * row_length / unit;
    const bool together = warp_first >= i * units && warp_first + kWarp <= i * units + item_units;
    uint4* stage = together ? stages + threadIdx.x / kWarp * (kWarp * kMaxGroupedPixel) : nullptr;
    switch (field.pixel) {
      case 1:
        write_group<In, Out, 1>(reader, row, rest, out, stage);
        break;
      case 2:
        write_group<In, Out, 2>(reader, row, rest / 2, out, stage);
        break;
      case 3:
        write_group<In, Out, 3>(reader, row, rest / 3, out, stage);
        break;
      default:
        write_group<In, Out, 4>(reader, row, rest / 4, out, stage);
        break;
    }
  }
}

// What a block declares for itself counts towards what a device lets it have.
constexpr size_t kOwnBytes = kMaxItems * sizeof(Item) + kThreads * kMaxGroupedPixel * sizeof(uint4);

template <class Out, bool kPerLane>
__device__ void gather_block(const GatherArgs& args, const Tilings& tilings, const LanePointers* pointers) {
  extern __shared__ __align__(16) uint8_t slots[];
  __shared__ Item items[kMaxItems];
  __shared__ uint4 stages[kThreads * kMaxGroupedPixel];
  static_assert(sizeof(items) + sizeof(stages) == kOwnBytes);
  const int32_t f = static_cast<int32_t>(blockIdx.y);
  const GatherField& field = args.fields[f];
  const Tiling& tiling = tilings.field[f];
  const int64_t first_item = int64_t{blockIdx.x} * tiling.items_per_block;
  if (first_item >= tiling.num_items) return;
  const int num_items = static_cast<int>(min(int64_t{tiling.items_per_block}, tiling.num_items - first_item));
  const int32_t channels = field.planes * field.pixel;
  auto* affine = reinterpret_cast<float*>(slots + tiling.items_per_block * tiling.slot_bytes);

  if (static_cast<int>(threadIdx.x) < num_items)
    items[threadIdx.x] = plan_item<Out, kPerLane>(args, f, tiling, first_item + threadIdx.x, pointers);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * channels; i += kThreads) affine[i] = field.affine[i];
  __syncthreads();

  const int64_t sample_bytes =
      int64_t{field.planes} * field.height * field.width * field.pixel * bytes_of(field.type);
  load_items(field, tiling, args.plan.num_samples * sample_bytes, items, num_items, slots);
  __pipeline_commit();
  // While the rows are on their way.
  if (f == 0 && static_cast<int>(threadIdx.x) < num_items && items[threadIdx.x].tile == 0)
    write_label<kPerLane>(args, items[threadIdx.x], pointers);
  __pipeline_wait_prior(0);
  __syncthreads();

  switch (field.type) {
    case ValueType::kU8:
      write_items<uint8_t, Out>(field, tiling, items, num_items, slots, affine, stages);
      break;
    case ValueType::kU16:
      write_items<uint16_t, Out>(field, tiling, items, num_items, slots, affine, stages);
      break;
    case ValueType::kF32:
      write_items<float, Out>(field, tiling, items, num_items, slots, affine, stages);
      break;
    default:
      write_items<__nv_bfloat16, Out>(field, tiling, items, num_items, slots, affine, stages);
      break;
  }
}

// Twelve blocks of 128 threads per multiprocessor leave 40 registers per thread; more registers and fewer
// blocks were slower.
template <class Out>
__global__ void __launch_bounds__(kThreads, 12)
    gather_stacked(const __grid_constant__ GatherArgs args, const __grid_constant__ Tilings tilings) {
  gather_block<Out, false>(args, tilings, nullptr);
}

template <class Out>
__global__ void __launch_bounds__(kThreads, 12)
    gather_per_lane(const __grid_constant__ GatherArgs args, const __grid_constant__ Tilings tilings,
                    const __grid_constant__ LanePointers pointers) {
  gather_block<Out, true>(args, tilings, &pointers);
}

Tiling tiling_of(const GatherArgs& args, const GatherField& field) {
  Tiling tiling;
  const int64_t row_bytes = row_bytes_of(field);
  tiling.rows = static_cast<int32_t>(
      std::min<int64_t>(field.height, std::max<int64_t>(1, kTileBytes / std::max<int64_t>(row_bytes, 1))));
  tiling.tiles_per_plane = (field.height + tiling.rows - 1) / tiling.rows;
  tiling.tiles_per_image = tiling.tiles_per_plane * field.planes;
  // A slot starts on a line; its rows start up to 15 bytes later.
  tiling.slot_bytes =
      static_cast<int32_t>((tiling.rows * row_bytes + 2 * kLineBytes - 1) / kLineBytes * kLineBytes);
  tiling.items_per_block = std::max(1, std::min(kMaxItems, kTileBytes / tiling.slot_bytes));
  tiling.num_items = args.num_lanes * args.plan.batch * tiling.tiles_per_image;
  const int32_t vector = kLineBytes / bytes_of(args.out_type);
  tiling.lines = Divisor(static_cast<uint32_t>(tiling.slot_bytes / kLineBytes));
  tiling.grouped = field.width % vector == 0 && field.pixel <= kMaxGroupedPixel;
  const int64_t unit = tiling.grouped ? int64_t{vector} * field.pixel : 1;
  tiling.units = Divisor(static_cast<uint32_t>(int64_t{tiling.rows} * field.width * field.pixel / unit));
  tiling.row_length = Divisor(static_cast<uint32_t>(field.width * field.pixel));
  tiling.pixel = Divisor(static_cast<uint32_t>(field.pixel));
  return tiling;
}

// A kernel is always allowed the same, so that a launch that was captured keeps what it had.
cudaError_t allow_bytes(const void* kernel, size_t bytes) {
  if (bytes + kOwnBytes <= kBytesWithoutAsking) return cudaSuccess;
  int device = 0, most = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status =
          cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
    return status;
  if (bytes + kOwnBytes > static_cast<size_t>(most)) return cudaErrorInvalidConfiguration;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              most - static_cast<int>(kOwnBytes));
}

template <class Out>
cudaError_t launch(const GatherArgs& args, const LanePointers* pointers, const Tilings& tilings, dim3 grid,
                   size_t shared_bytes, cudaStream_t stream) {
  const void* kernel = pointers ? reinterpret_cast<const void*>(&gather_per_lane<Out>)
                                : reinterpret_cast<const void*>(&gather_stacked<Out>);
  if (const cudaError_t status = allow_bytes(kernel, shared_bytes)) {
    cudaGetLastError();  // it is told by the return value alone
    return status;
  }
  if (pointers) {
    gather_per_lane<Out><<<grid, kThreads, shared_bytes, stream>>>(args, tilings, *pointers);
  } else {
    gather_stacked<Out><<<grid, kThreads, shared_bytes, stream>>>(args, tilings);
  }
  return cudaGetLastError();
}

__global__ void advance_kernel(int64_t* position, int64_t num_batches) {
  advance(position, num_batches);
}

}  // namespace

cudaError_t launch_gather(const GatherArgs& args, const LanePointers* pointers, cudaStream_t stream) {
  Tilings tilings;
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
  for (int f = 0; f < args.num_fields; ++f) {
    // A tile has at least one row, and a slot's bytes are counted in 32 bits.
    if (row_bytes_of(args.fields[f]) > kMaxSharedBytes) return cudaErrorInvalidConfiguration;
    const Tiling tiling = tiling_of(args, args.fields[f]);
    if (tiling.num_items > INT32_MAX) return cudaErrorInvalidConfiguration;
    blocks = std::max(blocks, (tiling.num_items + tiling.items_per_block - 1) / tiling.items_per_block);
    const int64_t channels = int64_t{args.fields[f].planes} * args.fields[f].pixel;
    shared_bytes = std::max(shared_bytes, int64_t{tiling.items_per_block} * tiling.slot_bytes +
                                              2 * channels * int64_t{sizeof(float)});
    tilings.field[f] = tiling;
  }
  if (shared_bytes > kMaxSharedBytes) return cudaErrorInvalidConfiguration;
  if (blocks == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(args.num_fields));
  const auto bytes = static_cast<size_t>(shared_bytes);
  switch (args.out_type) {
    case ValueType::kF32:
      return launch<float>(args, pointers, tilings, grid, bytes, stream);
    case ValueType::kBf16:
      return launch<__nv_bfloat16>(args, pointers, tilings, grid, bytes, stream);
    case ValueType::kF16:
      return launch<__half>(args, pointers, tilings, grid, bytes, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_advance(int64_t* position, int64_t num_batches, cudaStream_t stream) {
  advance_kernel<<<1, 1, 0, stream>>>(position, num_batches);
  return cudaGetLastError();
}

}  // namespace espalier::data
