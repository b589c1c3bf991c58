#include "espalier/train/loss_scale.h"

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "espalier/lanes/lane_tensor.h"

namespace espalier::train {

LossScale::LossScale(int64_t lanes, at::Device device)
    : scales_(at::full({lanes}, kFirst, at::TensorOptions(at::kFloat).device(device))),
      good_steps_(at::zeros({lanes}, at::TensorOptions(at::kLong).device(device))) {}

at::Tensor LossScale::inverse() const {
  return scales_.reciprocal();
}

at::Tensor LossScale::is_smallest() const {
  return scales_ <= kSmallest;
}

void LossScale::update(const at::Tensor& finite) {
  lanes::check_sizes(finite, scales_.sizes(), "LossScale.update", "finite", "[L]");
  const at::Tensor good = at::where(finite, good_steps_ + 1, 0);
  const at::Tensor grows = good >= kGrowthSteps;
  const at::Tensor larger = at::where(grows, (scales_ * 2).clamp_max(kLargest), scales_);
  scales_.copy_(at::where(finite, larger, (scales_ * 0.5).clamp_min(kSmallest)));
  good_steps_.copy_(at::where(grows, 0, good));
}

void scale_lane_gradients_(const std::vector<lanes::LaneParameter*>& parameters, const at::Tensor& factors) {
  const c10::NoGradGuard no_grad;
  for (const lanes::LaneParameter* parameter : parameters)
    parameter->gradient().mul_(lanes::per_lane(factors, parameter->gradient()));
}

}  // namespace espalier::train
