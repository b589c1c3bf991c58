// What the gather operator hands to its CUDA kernel: plain pointers and sizes, no torch, so that nvcc alone
// builds gather.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "espalier/data/augment.h"
#include "espalier/data/lane_plan.h"

namespace espalier::data {

inline constexpr int kMaxFields = 8;
// Pointers that fit into a kernel's arguments (32 KiB on Volta and later, of which they take half).
inline constexpr int kMaxLanePointers = 2048;

enum class ValueType : int32_t { kU8, kU16, kF32, kBf16, kF16 };

// One field. Channels-last is one plane of `pixel` = C interleaved channels; contiguous is C planes of one.
struct GatherField {
  const void* values = nullptr;  // [N, planes, H, W, pixel] u8|u16|f32|bf16, on the device or pinned
  const float* affine =
      nullptr;  // [2, C] f32 cuda: scale, shift; stored floats use the shift alone, for black
  ValueType type = ValueType::kU8;
  int32_t planes = 1;
  int32_t height = 0;
  int32_t width = 0;
  int32_t pixel = 0;
  void* out = nullptr;      // [L, B, planes, H, W, pixel] stacked; nullptr: LanePointers has one per lane
  int64_t lane_stride = 0;  // from lane to lane in `out`, in values
};

struct GatherArgs {
  GatherField fields[kMaxFields];
  int32_t num_fields = 0;
  ValueType out_type = ValueType::kF32;
  const int64_t* labels = nullptr;    // [N] i64
  const int64_t* lane_ids = nullptr;  // [L] i64 cuda
  const int64_t* position = nullptr;  // [2] i64 cuda: epoch, batch; nullptr: the two below
  int64_t epoch = 0;
  int64_t batch_index = 0;
  int64_t num_lanes = 0;
  LanePlan plan;
  Augmentation augmentation;
  int64_t* labels_out = nullptr;  // [L, B] i64 stacked; -100 where there is no sample
  bool* mask_out = nullptr;       // [L, B] bool stacked, or nullptr
};

// Per-lane outputs: field f of lane l at [l * (num_fields + 1) + f], its labels at [.. + num_fields].
struct LanePointers {
  void* out[kMaxLanePointers];
  int32_t
      samples[kMaxLanePointers / 2];  // each lane's outputs hold; a plan in device memory may not fit them
};

// One launch for all lanes and fields. Deterministic: every output is written once, by one thread, from
// integers and one fused multiply-add. `pointers` is nullptr for stacked outputs.
// cudaErrorInvalidConfiguration: more than 2^31 tiles, or a row that shared memory does not hold.
cudaError_t launch_gather(const GatherArgs& args, const LanePointers* pointers, cudaStream_t stream);

// position: [2] i64 on the device: moved on by a batch of a pass of num_batches.
cudaError_t launch_advance(int64_t* position, int64_t num_batches, cudaStream_t stream);

}  // namespace espalier::data
