#include "espalier/policy/learn/adam.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace espalier::policy {

Adam::Adam(std::vector<NamedTensor> parameters, const AdamOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  TORCH_CHECK(!parameters_.empty(), "Adam: parameters: want at least one, got none");
  for (const NamedTensor& parameter : parameters_) {
    first_.push_back(at::zeros_like(parameter.tensor));
    second_.push_back(at::zeros_like(parameter.tensor));
  }
  num_steps_ = at::zeros({}, parameters_[0].tensor.options().dtype(at::kDouble));
}

void Adam::step(const std::vector<at::Tensor>& gradients, const at::Tensor& apply) {
  TORCH_CHECK(gradients.size() == parameters_.size(), "Adam: gradients: want ", parameters_.size(), ", got ",
              gradients.size());
  const c10::NoGradGuard no_grad;
  num_steps_.add_(apply);
  const at::Tensor first_share = 1 - at::pow(options_.beta1, num_steps_);
  const at::Tensor second_share = 1 - at::pow(options_.beta2, num_steps_);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    const at::Tensor first = first_[i] * options_.beta1 + gradients[i] * (1 - options_.beta1);
    const at::Tensor second = second_[i] * options_.beta2 + gradients[i].square() * (1 - options_.beta2);
    const at::Tensor moved = parameter - (first / first_share) /
                                             ((second / second_share).sqrt() + options_.epsilon) *
                                             options_.learning_rate;
    first_[i].copy_(at::where(apply, first, first_[i]));
    second_[i].copy_(at::where(apply, second, second_[i]));
    parameter.copy_(at::where(apply, moved, parameter));
  }
}

std::vector<NamedTensor> Adam::state() const {
  std::vector<NamedTensor> state{{"adam.num_steps", num_steps_}};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    state.push_back({"adam.first." + parameters_[i].name, first_[i]});
    state.push_back({"adam.second." + parameters_[i].name, second_[i]});
  }
  return state;
}

at::Tensor clip_gradients_(const std::vector<at::Tensor>& gradients, double most) {
  TORCH_CHECK(!gradients.empty(), "clip_gradients_: gradients: want at least one, got none");
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> squares;
  for (const at::Tensor& gradient : gradients) squares.push_back(gradient.square().sum());
  const at::Tensor norm = at::stack(squares).sum().sqrt();
  // The same guard against 0 as torch.nn.utils.clip_grad_norm_.
  const at::Tensor scale = (most / (norm + 1e-6)).clamp_max(1);
  for (const at::Tensor& gradient : gradients) gradient.mul_(scale);
  return norm;
}

}  // namespace espalier::policy
