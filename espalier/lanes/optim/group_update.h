// One update of many groups of stacked parameters: the hosts of all lanes, and every stack of seeds. Gradient
// norms, which entries may move, clipping and SGD.
//
// Kept true:
// - A lane whose loss or host gradients are not finite is not updated, with all that grew on it; nor is an
//   entry whose own gradients are not finite. The others do not notice, and keep their bits.
// - Every host and every seed is clipped by its own norm.
// - Nothing is read on the host. On CUDA the update is three launches that walk lists, and read the step's
//   number, in device memory: captured once, it follows set_groups() and the schedule when it is replayed,
//   as long as generation() stays.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "espalier/lanes/optim/optimizer.h"
#include "espalier/lanes/parameter.h"

namespace espalier::lanes {

struct UpdatedGroup {
  std::vector<LaneParameter*> parameters;  // [E,...] each
  LaneSGD* optimizer = nullptr;            // theirs
  std::vector<int64_t> lanes;              // [E]: the lane of each entry, -1 empty
  // What its optimiser has per entry, here by the entry's lane: written in place, followed by a captured
  // update.
  at::Tensor momentum_factors;  // [L] f64
  at::Tensor weight_decays;     // [L] f64
  at::Tensor frozen;            // [E] bool: entries that are not updated; undefined: none
  at::Tensor norms;             // [L] f64: the sum that its norms are added to; undefined: none
};

// What a step says of its lanes; [L] each.
struct UpdateInputs {
  at::Tensor losses;      // master type, not scaled
  at::Tensor is_active;   // bool: lanes that are trained at all
  at::Tensor peak_rates;  // master type: what the schedule takes shares of
  at::Tensor step;        // [1] f64: its number in the run, from 0; the update adds one
  // What a step's rate is of the peak. Groups whose rates fall with the age of an entry have shares of their
  // own, over the steps that an entry has made and those that the run has left.
  RunShare schedule;
  at::Tensor scales;          // f32: f16's loss scales, by which gradients are divided; undefined: none
  double smallest_scale = 0;  // below which a scale does not fall
  // f64, for a lane's host and for each entry of the other groups, 0: any; undefined: any for all.
  at::Tensor clip_norms;
};

// What it adds up; [L] f64 each. The last two are for f16 alone.
struct UpdateSums {
  at::Tensor norms;          // += of the hosts, before clipping
  at::Tensor largest_norms;  // max=
  at::Tensor non_finite;     // += 1 where a lane that is trained could not be
  at::Tensor skipped;        // += 1 where the loss scale is to be lowered first
  at::Tensor is_whole;       // [L] bool: written, false where gradients overflowed
};

class GroupUpdate {
 public:
  GroupUpdate();
  ~GroupUpdate();
  GroupUpdate(const GroupUpdate&) = delete;
  GroupUpdate& operator=(const GroupUpdate&) = delete;

  // Between steps. The first are the hosts, whose entry l is lane l. Parameters and optimisers outlive this.
  void set_groups(std::vector<UpdatedGroup> groups);
  const std::vector<UpdatedGroup>& groups() const { return groups_; }

  // Changes where a captured update has to be captured again.
  int64_t generation() const;

  // Within a step, after the gradients were written.
  void run(const UpdateInputs& inputs, const UpdateSums& sums);
  // The same, group by group and by torch's operators: what the kernels are compared with.
  void run_plainly(const UpdateInputs& inputs, const UpdateSums& sums);

 private:
  struct Lists;

  void check_inputs(const UpdateInputs& inputs) const;

  std::vector<UpdatedGroup> groups_;
  std::unique_ptr<Lists> lists_;  // on CUDA
};

}  // namespace espalier::lanes
