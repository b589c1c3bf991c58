// Which sample goes to which lane: the arithmetic of a plan, shared by the CPU and the gather kernel.
// GatherPlan (plan.h) checks its inputs and is what people use; this is the part that a kernel evaluates.
//
//   split   the lanes of a group share one permutation out: a batch takes perm[cursor : cursor + lanes *
//   batch]
//           and splits it as torch.tensor_split does (10 over 3: 4, 3, 3)
//   own     every lane has its own permutation of the whole split
//   shared  all lanes get the same samples
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/core/random/permutation.h"

namespace espalier::data {

enum class PlanKind : int32_t { kSplit = 0, kOwn = 1, kShared = 2 };

struct LanePlan {
  PlanKind kind = PlanKind::kShared;
  bool shuffled = false;    // false: file order
  uint64_t key = 0;         // split: seed + 1009 * the device's stable index; own, shared: seed
  int64_t num_samples = 0;  // N
  int64_t batch = 0;        // B, samples per lane and batch
  int64_t group_lanes = 0;  // lanes that share a permutation out (split)

  // Samples of the order that one batch uses up.
  ESPALIER_HOST_DEVICE int64_t stride() const {
    return kind == PlanKind::kSplit ? batch * group_lanes : batch;
  }
};

// The batch after the one at `position`, [2]: pass, batch.
ESPALIER_HOST_DEVICE void advance(int64_t* position, int64_t num_batches) {
  position[1] += 1;
  if (position[1] < num_batches) return;
  position[0] += 1;
  position[1] = 0;
}

// Whether N * stride() fits 63 bits, which all arithmetic below relies on.
inline bool fits(const LanePlan& plan) {
  int64_t stride = plan.batch;
  if (plan.batch < 1 || plan.group_lanes < 1 || plan.num_samples < 0) return false;
  if (plan.kind == PlanKind::kSplit && __builtin_mul_overflow(stride, plan.group_lanes, &stride))
    return false;
  int64_t last = 0;
  return !__builtin_mul_overflow(stride, plan.num_samples, &last);
}

// A lane's part of one batch: `count` consecutive positions of its order, from `begin`.
struct LaneRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// `own` draws a lane's order from a 32-bit stream; 0 belongs to the other plans.
inline constexpr uint64_t kMaxOwnLanes = 0xffffffffu;

// Whether the plan has such a lane: the rank in the group (split) or the global lane (own); shared ignores
// it.
ESPALIER_HOST_DEVICE bool has_lane(const LanePlan& plan, int64_t lane) {
  if (plan.kind == PlanKind::kShared) return true;
  const uint64_t lanes =
      plan.kind == PlanKind::kSplit ? static_cast<uint64_t>(plan.group_lanes) : kMaxOwnLanes;
  return static_cast<uint64_t>(lane) < lanes;  // one below 0 is far above
}

// No samples for a lane or a batch that the plan does not have: lane ids and positions in device memory reach
// this unchecked. `plan` passes fits(), so that the cursor of a batch below N does not overflow.
ESPALIER_HOST_DEVICE LaneRange lane_range(const LanePlan& plan, int64_t lane, int64_t batch_index) {
  if (batch_index < 0 || batch_index >= plan.num_samples || !has_lane(plan, lane)) return {0, 0};
  const int64_t cursor = batch_index * plan.stride();
  int64_t left = plan.num_samples - cursor;
  if (left <= 0) return {cursor, 0};
  if (left > plan.stride()) left = plan.stride();
  if (plan.kind != PlanKind::kSplit) return {cursor, left};
  if (left == plan.stride())
    return {cursor + lane * plan.batch, plan.batch};  // spares a kernel two long divisions
  const int64_t whole = left / plan.group_lanes;
  const int64_t rest = left % plan.group_lanes;
  return {cursor + lane * whole + (lane < rest ? lane : rest), whole + (lane < rest ? 1 : 0)};
}

// The sample at `position` of the lane's order in `epoch`.
ESPALIER_HOST_DEVICE int64_t sample_at(const LanePlan& plan, int64_t lane, uint64_t epoch, int64_t position) {
  if (!plan.shuffled) return position;
  const uint32_t stream = plan.kind == PlanKind::kOwn ? static_cast<uint32_t>(lane) + 1u : 0u;
  const Permutation order(plan.key, epoch, static_cast<uint64_t>(plan.num_samples), Purpose::kPermutation,
                          stream);
  return static_cast<int64_t>(order(static_cast<uint64_t>(position)));
}

}  // namespace espalier::data
