#include "espalier/policy/learn/value_normalizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace espalier::policy {
namespace {

// Returns that differ by less than this are all the same.
constexpr double kLeastReturnDeviation = 1e-3;

}  // namespace

ValueNormalizer::ValueNormalizer(const at::TensorOptions& tensors, double decay) : decay_(decay) {
  TORCH_CHECK(decay >= 0 && decay < 1, "ValueNormalizer: decay: want 0 to below 1, got ", decay);
  const at::TensorOptions options = tensors.dtype(at::kDouble);
  sum_ = at::zeros({}, options);
  square_ = at::zeros({}, options);
  weight_ = at::zeros({}, options);
}

at::Tensor ValueNormalizer::mean() const {
  return at::where(weight_.gt(0), sum_ / weight_, 0);
}

at::Tensor ValueNormalizer::deviation() const {
  const at::Tensor variance = square_ / weight_ - mean().square();
  return at::where(weight_.gt(0), variance.clamp_min(kLeastReturnDeviation * kLeastReturnDeviation).sqrt(),
                   1);
}

void ValueNormalizer::update(const at::Tensor& returns, const at::Tensor& counts,
                             const PolicyNetwork& network) {
  const c10::NoGradGuard no_grad;
  const at::Tensor old_mean = mean(), old_deviation = deviation();
  const at::Tensor kept = at::where(counts, returns, 0).to(at::kDouble);
  const at::Tensor number = counts.sum().to(at::kDouble), some = number.gt(0), divisor = number.clamp_min(1);
  // A round in which nothing counted changes nothing.
  const auto take = [&](const at::Tensor& total, const at::Tensor& value) {
    total.copy_(at::where(some, total * decay_ + value * (1 - decay_), total));
  };
  take(sum_, kept.sum() / divisor);
  take(square_, kept.square().sum() / divisor);
  take(weight_, at::ones_like(weight_));
  const at::Tensor new_deviation = deviation(), scale = old_deviation / new_deviation;
  network.value_weight().mul_(scale.to(network.value_weight().scalar_type()));
  network.value_bias().copy_(network.value_bias() * scale + (old_mean - mean()) / new_deviation);
}

at::Tensor ValueNormalizer::normalise(const at::Tensor& values) const {
  return ((values - mean()) / deviation()).to(values.scalar_type());
}

at::Tensor ValueNormalizer::denormalise(const at::Tensor& values) const {
  return (values * deviation() + mean()).to(values.scalar_type());
}

std::vector<NamedTensor> ValueNormalizer::state() const {
  return {{"value_normalizer.sum", sum_},
          {"value_normalizer.square", square_},
          {"value_normalizer.weight", weight_}};
}

}  // namespace espalier::policy
