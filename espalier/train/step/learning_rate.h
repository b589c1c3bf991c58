// The learning rate over a run, as a share of its peak: it rises linearly while it warms up, then falls to 0
// in a line or along a cosine, falls to a tenth at half and to a hundredth at three quarters of the run, or
// stays. One cycle (Smith and Topin, arXiv 1708.07120) is a line up over the first fifth and a line down.
//
// Kept true: on a device it is computed from a counter there, so a captured step moves on when it is
// replayed; host and device agree bit for bit along lines and steps (each operation is rounded once, in
// double).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "espalier/lanes/optim/rate_curve.h"

namespace espalier::train {

using lanes::RateCurve;

class RateSchedule {
 public:
  // warm_up: steps, from 0 to below num_steps.
  RateSchedule(RateCurve curve, int64_t num_steps, double warm_up);
  static RateSchedule one_cycle(int64_t num_steps) {
    return {RateCurve::kLinear, num_steps, 0.2 * static_cast<double>(num_steps)};
  }

  int64_t num_steps() const { return static_cast<int64_t>(share_.steps); }
  const lanes::RunShare& share() const { return share_; }

  // The share of the peak rate, in (0, 1], in the middle of a step that counts from 0.
  double at(int64_t step) const { return share_.at(static_cast<double>(step)); }
  // The same for step [1] f64 on any device: [1] f64.
  at::Tensor at(const at::Tensor& step) const;

 private:
  lanes::RunShare share_;
};

}  // namespace espalier::train
