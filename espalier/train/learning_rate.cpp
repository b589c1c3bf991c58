#include "espalier/train/learning_rate.h"

#include <ATen/ops/minimum.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier::train {

OneCycle::OneCycle(int64_t num_steps) : num_steps_(static_cast<double>(num_steps)) {
  if (num_steps < 1) fail_usage("learning rate: want a run of at least 1 step, got {}", num_steps);
  const double peak = 0.2 * num_steps_;
  rise_ = 1 / peak;
  fall_ = 1 / (num_steps_ - peak);
}

// The smaller of two lines that meet at the peak.
double OneCycle::at(int64_t step) const {
  const double middle = static_cast<double>(step) + 0.5;
  return std::min(middle * rise_, (num_steps_ - middle) * fall_);
}

at::Tensor OneCycle::at(const at::Tensor& step) const {
  const at::Tensor middle = step + 0.5;
  return at::minimum(middle * rise_, (num_steps_ - middle) * fall_);
}

}  // namespace espalier::train
