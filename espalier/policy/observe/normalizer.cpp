#include "espalier/policy/observe/normalizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace espalier::policy {
namespace {

// A feature that varies less is not blown up further: a first 1 of a one-hot comes out as the largest there
// is.
constexpr double kLeastFeatureDeviation = 1e-2;
constexpr double kLargest = 10;

}  // namespace

ObservationNormalizer::ObservationNormalizer(int64_t num_features, const at::TensorOptions& tensors) {
  TORCH_CHECK(num_features >= 1, "ObservationNormalizer: num_features: want 1 or more, got ", num_features);
  const at::TensorOptions wide = tensors.dtype(at::kDouble);
  num_ = at::zeros({}, wide);
  mean_ = at::zeros({num_features}, wide);
  squares_ = at::zeros({num_features}, wide);
  shift_ = at::zeros({num_features}, tensors);
  scale_ = at::ones({num_features}, tensors);
}

// Two sets of numbers become one (Chan, Golub and LeVeque, 1979).
void ObservationNormalizer::collect(const at::Tensor& features, const at::Tensor& counts) {
  TORCH_CHECK(features.dim() == 2 && features.size(1) == mean_.size(0) && counts.scalar_type() == at::kBool &&
                  counts.sizes() == features.sizes().slice(0, 1),
              "ObservationNormalizer: features, counts: want [L,", mean_.size(0), "] and [L] Bool, got ",
              features.sizes(), " and ", counts.sizes(), " ", counts.scalar_type());
  const c10::NoGradGuard no_grad;
  const at::Tensor counted = counts.unsqueeze(1);
  const at::Tensor x = at::where(counted, features, 0).to(at::kDouble);
  const at::Tensor num = counts.sum().to(at::kDouble);
  const at::Tensor mean = x.sum(0) / num.clamp_min(1);
  const at::Tensor squares = at::where(counted, x - mean, 0).square().sum(0);
  const at::Tensor total = num_ + num, share = num / total.clamp_min(1), apart = mean - mean_;
  squares_.add_(squares + apart.square() * num_ * share);
  mean_.add_(apart * share);
  num_.copy_(total);
}

void ObservationNormalizer::publish() {
  const c10::NoGradGuard no_grad;
  const at::Tensor deviation = (squares_ / num_.clamp_min(1)).sqrt().clamp_min(kLeastFeatureDeviation);
  shift_.copy_(mean_);
  scale_.copy_(at::where(num_.gt(0), deviation.reciprocal(), 1));
}

at::Tensor ObservationNormalizer::normalise(const at::Tensor& features) const {
  return ((features - shift_) * scale_).clamp(-kLargest, kLargest);
}

std::vector<NamedTensor> ObservationNormalizer::state() const {
  return {{"observation_normalizer.num", num_},
          {"observation_normalizer.mean", mean_},
          {"observation_normalizer.squares", squares_},
          {"observation_normalizer.shift", shift_},
          {"observation_normalizer.scale", scale_}};
}

}  // namespace espalier::policy
