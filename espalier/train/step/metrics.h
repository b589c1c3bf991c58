// The sums over an epoch's steps for every lane: on the device, in one tensor, which the epoch's one copy
// takes along.
//
// Kept true: a lane's numbers depend on that lane alone; a value that is not finite stays so in its sum.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/lanes/optim/group_update.h"

namespace espalier::train {

// Means over an epoch of one lane.
struct LaneMetrics {
  double loss = 0;
  double accuracy = 0;        // in [0, 1]
  double gradient_norm = 0;   // the host's, before clipping
  double largest_norm = 0;    // the largest of any batch
  int64_t non_finite = 0;     // steps that were left out since the loss or the gradients were not finite
  int64_t skipped = 0;        // fp16: steps left out to lower the loss scale
  double loss_scale = 0;      // fp16: of the last step; 0 else
  std::vector<double> slots;  // [S] gradient norm of the seed in each slot; 0 where there is none
};

class StepMetrics {
 public:
  StepMetrics(int64_t lanes, int64_t slots, at::Device device);

  void clear();

  // Where a step adds losses times samples, hits and samples: [3,L] f64, as lane_cross_entropy() does.
  at::Tensor scores() const;
  void set_loss_scales(const at::Tensor& scales);
  // Where an update adds its own, and the norms of the seeds in a slot.
  lanes::UpdateSums update_sums() const;
  at::Tensor seed_norms(int64_t slot) const { return row(kFirstSlot + slot); }
  const at::Tensor& is_whole() const { return is_whole_; }  // [L] bool, f16: false where gradients overflowed

  // What sums() holds, row by row; then the gradient norm of the seed in each slot.
  enum Row : int64_t {
    kLoss,
    kCorrect,
    kValid,
    kNorm,
    kLargestNorm,
    kNonFinite,
    kSkipped,
    kScale,
    kFirstSlot
  };
  static int64_t num_rows(int64_t slots) { return kFirstSlot + slots; }

  const at::Tensor& sums() const { return sums_; }  // [rows,L] f64: what a step changes

  // Means from sums that were copied to the host; num_steps: that were added since clear().
  static std::vector<LaneMetrics> means(const at::Tensor& copied, int64_t num_steps);
  // The same with a copy of its own.
  std::vector<LaneMetrics> read(int64_t num_steps) const { return means(sums_.to(at::kCPU), num_steps); }

 private:
  at::Tensor row(int64_t which) const { return sums_.select(0, which); }

  at::Tensor sums_;      // [kFirstSlot + S, L] f64
  at::Tensor is_whole_;  // [L] bool
};

}  // namespace espalier::train
