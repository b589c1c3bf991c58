// Loss scales for fp16, one per lane: losses are multiplied before the backward pass, so that small gradients
// do not vanish, and gradients divided after it (Micikevicius et al., arXiv 1710.03740).
//
// Kept true: every decision is made on the device; a lane's scale depends on that lane alone; scales are
// powers of two, so that scaling and dividing round nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/lanes/parameter.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

class LossScale {
 public:
  static constexpr double kFirst = 65536;  // as torch's GradScaler
  static constexpr double kSmallest = 1;
  static constexpr double kLargest = 16777216;  // 2^24: f32 still tells neighbours apart
  static constexpr int64_t kGrowthSteps = 2000;

  LossScale(int64_t lanes, at::Device device);

  const at::Tensor& scales() const { return scales_; }  // [L] f32
  // [L] f32: what gradients are multiplied with after the backward pass.
  at::Tensor inverse() const;
  // [L] bool: lanes whose scale cannot be lowered further.
  at::Tensor is_smallest() const;

  // After a step. finite: [L] bool, whether the lane's gradients were. Halves the scale where they were not,
  // doubles it after kGrowthSteps in a row where they were.
  void update(const at::Tensor& finite);

  void reset();  // all lanes start over

  // What a step changes.
  std::vector<at::Tensor> state() const { return {scales_, good_steps_}; }
  void visit_state(run::StateArchive& archive);

 private:
  at::Tensor scales_;      // [L] f32
  at::Tensor good_steps_;  // [L] i64, in a row
};

}  // namespace espalier::train
