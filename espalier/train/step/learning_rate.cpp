#include "espalier/train/step/learning_rate.h"

#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <numbers>

#include "espalier/core/error.h"

namespace espalier::train {

using lanes::kAfterFirst;
using lanes::kAfterSecond;
using lanes::kFirstFall;
using lanes::kSecondFall;

RateSchedule::RateSchedule(RateCurve curve, int64_t num_steps, double warm_up)
    : curve_(curve), num_steps_(static_cast<double>(num_steps)), warm_up_(warm_up) {
  if (num_steps < 1) fail_usage("learning rate: want a run of at least 1 step, got {}", num_steps);
  if (!(warm_up >= 0 && warm_up < num_steps_))
    fail_usage("learning rate: want a warm-up of 0 to below {} steps, got {}", num_steps, warm_up);
  rise_ = warm_up > 0 ? 1 / warm_up : 0;
  fall_ = 1 / (num_steps_ - warm_up);
}

// The smaller of two curves that meet at the peak.
double RateSchedule::at(int64_t step) const {
  const double middle = static_cast<double>(step) + 0.5;
  const double risen = rise_ > 0 ? middle * rise_ : 1;
  return std::min(risen, lanes::share_left(curve_, middle, warm_up_, num_steps_));
}

at::Tensor RateSchedule::at(const at::Tensor& step) const {
  const at::Tensor middle = step + 0.5;
  const at::Tensor risen = rise_ > 0 ? middle * rise_ : at::ones_like(middle);
  switch (curve_) {
    case RateCurve::kLinear:
      return at::minimum(risen, (num_steps_ - middle) * fall_);
    case RateCurve::kCosine:
      return at::minimum(risen,
                         (((middle - warm_up_) * fall_).clamp(0, 1) * std::numbers::pi).cos() * 0.5 + 0.5);
    case RateCurve::kConstant:
      return risen.clamp_max(1);
    case RateCurve::kStep: {
      const at::Tensor first =
          at::where(middle < kFirstFall * num_steps_, at::ones_like(middle), kAfterFirst);
      return at::minimum(risen, at::where(middle < kSecondFall * num_steps_, first, kAfterSecond));
    }
  }
  return risen;
}

}  // namespace espalier::train
