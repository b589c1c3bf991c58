#include "espalier/train/step/loss_scale.h"

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "espalier/lanes/stack.h"
#include "espalier/run/archive.h"

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
  at::where_out(scales_, finite, larger, (scales_ * 0.5).clamp_min(kSmallest));
  at::where_out(good_steps_, grows, at::zeros_like(good), good);
}

void LossScale::reset() {
  scales_.fill_(kFirst);
  good_steps_.zero_();
}

void LossScale::visit_state(run::StateArchive& archive) {
  archive.lane_tensor("loss_scale.scales", scales_);
  archive.lane_tensor("loss_scale.good_steps", good_steps_);
}

}  // namespace espalier::train
