// Gather, crop, flip, normalise and cast, for all lanes and fields in one launch.
//
// Work is cut into items: one tile of rows of one plane of one image. A block takes a few items of one field
// (blockIdx.y):
//   1. one thread an item evaluates the plan (which sample, where it moved) and, for an image's first tile, writes
//      its label and mask;
//   2. all threads copy the items' source rows, a contiguous range, into shared memory, 16 bytes at a time;
//   3. all threads write outputs, 16 bytes at a time, reading shared memory at the displaced place.
// Shared memory makes every read of the dataset wide and once, so the same kernel serves pinned host memory.
// Tiles hold at most kTileBytes of source (one row where a row is longer); 32-bit offsets suffice inside a tile.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <algorithm>

#include "espalier/data/gather_kernel.h"

namespace espalier::data {
namespace {

constexpr int kThreads = 256;
constexpr int kTileBytes = 12288;  // 8 blocks of 256 threads fill a multiprocessor's threads and 96 KiB of its memory
constexpr int kMaxItems = 16;
constexpr int kLineBytes = 16;
constexpr int64_t kIgnoredLabel = -100;  // torch's ignore_index

// Division by a number known before the launch: n / d == (umulhi(n, multiplier) + n) >> shift for n < 2^31
// (Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994).
struct Divisor {
  uint32_t divisor = 1;
  uint32_t multiplier = 1;
  uint32_t shift = 0;

  explicit Divisor(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  Divisor() = default;
  __device__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};

struct Tiling {
  int32_t rows = 0;             // a tile has, the last of a plane maybe fewer
  int32_t tiles_per_plane = 0;
  int32_t tiles_per_image = 0;
  int32_t items_per_block = 0;
  int32_t slot_bytes = 0;  // of shared memory an item
  int64_t num_items = 0;
  Divisor row_length;  // W * pixel
  Divisor pixel;
};

struct Tilings {
  Tiling field[kMaxFields];
};

// What a block knows of one item after step 1.
struct Item {
  int64_t source_byte;  // of the first source row that exists, in the field
  int32_t source_bytes;
  int32_t first_row;  // the source row at source_byte
  int32_t end_row;    // one past the last source row in the tile
  int32_t row0;       // first output row
  int32_t rows;       // output rows
  int32_t plane;
  int32_t skew;  // bytes between the slot's begin and source_byte's place in it
  Displacement moved;
  bool valid;
  int64_t lane;
  int64_t image;  // in the lane's batch
};

__host__ __device__ int bytes_of(ValueType type) {
  return type == ValueType::kU8 ? 1 : type == ValueType::kF32 ? 4 : 2;
}

template <class Out>
__device__ Out cast(float value);
template <>
__device__ float cast<float>(float value) { return value; }
template <>
__device__ __nv_bfloat16 cast<__nv_bfloat16>(float value) { return __float2bfloat16_rn(value); }
template <>
__device__ __half cast<__half>(float value) { return __float2half_rn(value); }

// Stored integers are normalised, stored floats already are.
__device__ float normalised(uint8_t value, float scale, float shift) { return __fmaf_rn(value, scale, shift); }
__device__ float normalised(uint16_t value, float scale, float shift) { return __fmaf_rn(value, scale, shift); }
__device__ float normalised(float value, float, float) { return value; }
__device__ float normalised(__nv_bfloat16 value, float, float) { return __bfloat162float(value); }

__device__ Item plan_item(const GatherArgs& args, const GatherField& field, const Tiling& tiling, int64_t index,
                          const LanePointers* pointers) {
  Item item{};
  const int64_t image = index / tiling.tiles_per_image;
  const auto tile = static_cast<int32_t>(index - image * tiling.tiles_per_image);
  item.lane = image / args.plan.batch;
  item.image = image - item.lane * args.plan.batch;
  item.plane = tile / tiling.tiles_per_plane;
  item.row0 = (tile - item.plane * tiling.tiles_per_plane) * tiling.rows;
  item.rows = min(tiling.rows, field.height - item.row0);

  const int64_t lane_id = args.lane_ids[item.lane];
  const auto epoch = static_cast<uint64_t>(args.position ? args.position[0] : args.epoch);
  const int64_t batch_index = args.position ? args.position[1] : args.batch_index;
  const LaneRange range = lane_range(args.plan, lane_id, batch_index);
  item.valid = item.image < range.count;

  int64_t sample = 0;
  if (item.valid) {
    sample = sample_at(args.plan, lane_id, epoch, range.begin + item.image);
    item.moved = displacement(args.augmentation, epoch, sample);
    const int64_t row_bytes = int64_t{field.width} * field.pixel * bytes_of(field.type);
    item.first_row = min(max(item.row0 + item.moved.shift_y, 0), field.height);
    item.end_row = max(min(item.row0 + item.rows + item.moved.shift_y, field.height), item.first_row);
    item.source_byte = ((sample * field.planes + item.plane) * field.height + item.first_row) * row_bytes;
    item.source_bytes = static_cast<int32_t>((item.end_row - item.first_row) * row_bytes);
    const auto address = reinterpret_cast<uintptr_t>(field.values) + static_cast<uintptr_t>(item.source_byte);
    item.skew = static_cast<int32_t>(address % kLineBytes);
  }
  if (blockIdx.y == 0 && tile == 0) {
    int64_t* labels = pointers ? static_cast<int64_t*>(
                                     pointers->out[item.lane * (args.num_fields + 1) + args.num_fields])
                               : args.labels_out + item.lane * args.plan.batch;
    if (item.valid || !pointers) labels[item.image] = item.valid ? args.labels[sample] : kIgnoredLabel;
    if (args.mask_out) args.mask_out[image] = item.valid;
  }
  return item;
}

// Copies the item's source rows into its slot. Whole lines are copied where they lie inside the field; the bytes
// of a line that begins before the item's rows or ends after them are never used.
__device__ void load_item(const GatherField& field, int64_t field_bytes, const Item& item, uint8_t* slot) {
  const auto* values = static_cast<const uint8_t*>(field.values);
  const int64_t begin = item.source_byte - item.skew;
  const int lines = (item.skew + item.source_bytes + kLineBytes - 1) / kLineBytes;
  for (int line = static_cast<int>(threadIdx.x); line < lines; line += kThreads) {
    const int64_t at = begin + int64_t{line} * kLineBytes;
    if (at >= 0 && at + kLineBytes <= field_bytes) {
      __pipeline_memcpy_async(slot + line * kLineBytes, values + at, kLineBytes);
    } else {
      for (int i = 0; i < kLineBytes; ++i)
        if (at + i >= 0 && at + i < field_bytes) slot[line * kLineBytes + i] = values[at + i];
    }
  }
}

// Element `e` of the item's output tile, [rows, W, pixel].
template <class In, class Out>
struct TileReader {
  const GatherField& field;
  const Item& item;
  const In* source;     // [end_row - first_row, W, pixel] shared
  const float* affine;  // [2, C] shared
  int32_t channels;
  int32_t row_length;

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

template <class In, class Out>
__device__ void write_item(const GatherField& field, const Tiling& tiling, const Item& item, const uint8_t* slot,
                           const float* affine, int32_t channels, Out* out) {
  constexpr int kVector = kLineBytes / static_cast<int>(sizeof(Out));
  const int32_t row_length = field.width * field.pixel;
  const int32_t count = item.rows * row_length;
  const TileReader<In, Out> reader{field,  item,     reinterpret_cast<const In*>(slot + item.skew),
                                   affine, channels, row_length};
  const bool aligned = reinterpret_cast<uintptr_t>(out) % kLineBytes == 0;
  const int32_t in_vectors = aligned ? count - count % kVector : 0;

  for (int32_t e = static_cast<int32_t>(threadIdx.x) * kVector; e < in_vectors; e += kThreads * kVector) {
    alignas(kLineBytes) Out values[kVector];
    if (item.valid) {
      int32_t row = static_cast<int32_t>(tiling.row_length.quotient(static_cast<uint32_t>(e)));
      const int32_t rest = e - row * row_length;
      int32_t x = static_cast<int32_t>(tiling.pixel.quotient(static_cast<uint32_t>(rest)));
      int32_t c = rest - x * field.pixel;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        values[i] = reader.read(row, x, c);
        if (++c == field.pixel) {
          c = 0;
          if (++x == field.width) {
            x = 0;
            ++row;
          }
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = cast<Out>(0.0f);
    }
    *reinterpret_cast<uint4*>(out + e) = *reinterpret_cast<const uint4*>(values);
  }
  for (int32_t e = in_vectors + static_cast<int32_t>(threadIdx.x); e < count; e += kThreads) {
    const int32_t row = static_cast<int32_t>(tiling.row_length.quotient(static_cast<uint32_t>(e)));
    const int32_t rest = e - row * row_length;
    const int32_t x = static_cast<int32_t>(tiling.pixel.quotient(static_cast<uint32_t>(rest)));
    out[e] = item.valid ? reader.read(row, x, rest - x * field.pixel) : cast<Out>(0.0f);
  }
}

template <class Out, bool kPerLane>
__device__ void gather_block(const GatherArgs& args, const Tilings& tilings, const LanePointers* pointers) {
  extern __shared__ __align__(16) uint8_t slots[];
  __shared__ Item items[kMaxItems];
  const int32_t f = static_cast<int32_t>(blockIdx.y);
  const GatherField& field = args.fields[f];
  const Tiling& tiling = tilings.field[f];
  const int64_t first_item = int64_t{blockIdx.x} * tiling.items_per_block;
  if (first_item >= tiling.num_items) return;
  const int num_items =
      static_cast<int>(min(int64_t{tiling.items_per_block}, tiling.num_items - first_item));
  const int32_t channels = field.planes * field.pixel;
  auto* affine = reinterpret_cast<float*>(slots + tiling.items_per_block * tiling.slot_bytes);

  if (static_cast<int>(threadIdx.x) < num_items)
    items[threadIdx.x] = plan_item(args, field, tiling, first_item + threadIdx.x, kPerLane ? pointers : nullptr);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * channels; i += kThreads) affine[i] = field.affine[i];
  __syncthreads();

  const int64_t sample_bytes =
      int64_t{field.planes} * field.height * field.width * field.pixel * bytes_of(field.type);
  for (int i = 0; i < num_items; ++i)
    if (items[i].valid)
      load_item(field, args.plan.num_samples * sample_bytes, items[i], slots + i * tiling.slot_bytes);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();

  for (int i = 0; i < num_items; ++i) {
    const Item& item = items[i];
    Out* out = kPerLane ? static_cast<Out*>(pointers->out[item.lane * (args.num_fields + 1) + f])
                        : static_cast<Out*>(field.out) + item.lane * field.lane_stride;
    if (kPerLane && !item.valid) continue;  // an owned batch has no room for samples that are not there
    out += ((item.image * field.planes + item.plane) * field.height + item.row0) * field.width * field.pixel;
    const uint8_t* slot = slots + i * tiling.slot_bytes;
    switch (field.type) {
      case ValueType::kU8: write_item<uint8_t>(field, tiling, item, slot, affine, channels, out); break;
      case ValueType::kU16: write_item<uint16_t>(field, tiling, item, slot, affine, channels, out); break;
      case ValueType::kF32: write_item<float>(field, tiling, item, slot, affine, channels, out); break;
      default: write_item<__nv_bfloat16>(field, tiling, item, slot, affine, channels, out); break;
    }
  }
}

template <class Out>
__global__ void __launch_bounds__(kThreads)
    gather_stacked(const __grid_constant__ GatherArgs args, const __grid_constant__ Tilings tilings) {
  gather_block<Out, false>(args, tilings, nullptr);
}

template <class Out>
__global__ void __launch_bounds__(kThreads)
    gather_per_lane(const __grid_constant__ GatherArgs args, const __grid_constant__ Tilings tilings,
                    const __grid_constant__ LanePointers pointers) {
  gather_block<Out, true>(args, tilings, &pointers);
}

Tiling tiling_of(const GatherArgs& args, const GatherField& field) {
  Tiling tiling;
  const int64_t row_bytes = int64_t{field.width} * field.pixel * bytes_of(field.type);
  tiling.rows = static_cast<int32_t>(
      std::min<int64_t>(field.height, std::max<int64_t>(1, kTileBytes / std::max<int64_t>(row_bytes, 1))));
  tiling.tiles_per_plane = (field.height + tiling.rows - 1) / tiling.rows;
  tiling.tiles_per_image = tiling.tiles_per_plane * field.planes;
  // A slot starts on a line; its rows start up to 15 bytes later.
  tiling.slot_bytes =
      static_cast<int32_t>((tiling.rows * row_bytes + 2 * kLineBytes - 1) / kLineBytes * kLineBytes);
  tiling.items_per_block = std::max(1, std::min(kMaxItems, kTileBytes / tiling.slot_bytes));
  tiling.num_items = args.num_lanes * args.plan.batch * tiling.tiles_per_image;
  tiling.row_length = Divisor(static_cast<uint32_t>(field.width * field.pixel));
  tiling.pixel = Divisor(static_cast<uint32_t>(field.pixel));
  return tiling;
}

template <class Out>
cudaError_t launch(const GatherArgs& args, const LanePointers* pointers, const Tilings& tilings, dim3 grid,
                   size_t shared_bytes, cudaStream_t stream) {
  const void* kernel = pointers ? reinterpret_cast<const void*>(&gather_per_lane<Out>)
                                : reinterpret_cast<const void*>(&gather_stacked<Out>);
  if (shared_bytes > 48 * 1024) {
    const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                    static_cast<int>(shared_bytes));
    if (status != cudaSuccess) return status;
  }
  if (pointers) {
    gather_per_lane<Out><<<grid, kThreads, shared_bytes, stream>>>(args, tilings, *pointers);
  } else {
    gather_stacked<Out><<<grid, kThreads, shared_bytes, stream>>>(args, tilings);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_gather(const GatherArgs& args, const LanePointers* pointers, cudaStream_t stream) {
  Tilings tilings;
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
  for (int f = 0; f < args.num_fields; ++f) {
    const Tiling tiling = tiling_of(args, args.fields[f]);
    blocks = std::max(blocks, (tiling.num_items + tiling.items_per_block - 1) / tiling.items_per_block);
    const int64_t channels = int64_t{args.fields[f].planes} * args.fields[f].pixel;
    shared_bytes = std::max(shared_bytes, int64_t{tiling.items_per_block} * tiling.slot_bytes +
                                              2 * channels * int64_t{sizeof(float)});
    tilings.field[f] = tiling;
  }
  if (blocks == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(args.num_fields));
  const auto bytes = static_cast<size_t>(shared_bytes);
  switch (args.out_type) {
    case ValueType::kF32: return launch<float>(args, pointers, tilings, grid, bytes, stream);
    case ValueType::kBf16: return launch<__nv_bfloat16>(args, pointers, tilings, grid, bytes, stream);
    case ValueType::kF16: return launch<__half>(args, pointers, tilings, grid, bytes, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace espalier::data
