// The learning rate over a run: one cycle, which rises linearly over the first fifth of the steps and then
// falls linearly to 0 (Smith and Topin, arXiv 1708.07120).
//
// Kept true: on a device it is computed from a counter there, so a captured step moves on when it is
// replayed; host and device agree bit for bit (each operation is rounded once, in double).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace espalier::train {

class OneCycle {
 public:
  explicit OneCycle(int64_t num_steps);

  // The share of the peak rate, in (0, 1], in the middle of a step that counts from 0.
  double at(int64_t step) const;
  // The same for step [1] f64 on any device: [1] f64.
  at::Tensor at(const at::Tensor& step) const;

 private:
  double num_steps_;
  double rise_;  // a step
  double fall_;  // a step
};

}  // namespace espalier::train
