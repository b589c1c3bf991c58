#include "espalier/train/step/learning_rate.h"

#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <numbers>

#include "espalier/core/error.h"

namespace espalier::train {

using lanes::kAfterFirst;
using lanes::kAfterSecond;
using lanes::kFirstFall;
using lanes::kSecondFall;

RateSchedule::RateSchedule(RateCurve curve, int64_t num_steps, double warm_up)
    : share_{.curve = curve,
             .steps = static_cast<double>(num_steps),
             .warm_up = warm_up,
             .rise = warm_up > 0 ? 1 / warm_up : 0} {
  if (num_steps < 1) fail_usage("learning rate: want a run of at least 1 step, got {}", num_steps);
  if (!(warm_up >= 0 && warm_up < share_.steps))
    fail_usage("learning rate: want a warm-up of 0 to below {} steps, got {}", num_steps, warm_up);
}

at::Tensor RateSchedule::at(const at::Tensor& step) const {
  const at::Tensor middle = step + 0.5;
  const at::Tensor risen = share_.rise > 0 ? middle * share_.rise : at::ones_like(middle);
  const double fall = 1 / (share_.steps - share_.warm_up);  // per step
  switch (share_.curve) {
    case RateCurve::kLinear:
      return at::minimum(risen, (share_.steps - middle) * fall);
    case RateCurve::kCosine:
      return at::minimum(
          risen, (((middle - share_.warm_up) * fall).clamp(0, 1) * std::numbers::pi).cos() * 0.5 + 0.5);
    case RateCurve::kConstant:
      return risen.clamp_max(1);
    case RateCurve::kStep: {
      const at::Tensor first =
          at::where(middle < kFirstFall * share_.steps, at::ones_like(middle), kAfterFirst);
      return at::minimum(risen, at::where(middle < kSecondFall * share_.steps, first, kAfterSecond));
    }
  }
  return risen;
}

}  // namespace espalier::train
