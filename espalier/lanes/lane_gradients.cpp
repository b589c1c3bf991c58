#include "espalier/lanes/lane_gradients.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "espalier/lanes/lane_tensor.h"

namespace espalier::lanes {
namespace {

int64_t check(const std::vector<at::Tensor>& parameters, const char* function) {
  TORCH_CHECK(!parameters.empty(), function, ": parameters: want at least one, got none");
  for (size_t i = 0; i < parameters.size(); ++i)
    TORCH_CHECK(parameters[i].dim() >= 1 && parameters[i].size(0) == parameters[0].size(0) &&
                    parameters[i].grad().defined(),
                function, ": parameters[", i, "]: want [", parameters[0].size(0),
                ",...] with a gradient, got ", parameters[i].sizes());
  return parameters[0].size(0);
}

}  // namespace

void lane_backward(const at::Tensor& losses, const std::vector<at::Tensor>& parameters) {
  const int64_t lanes = check(parameters, "lane_backward");
  check_sizes(losses, {lanes}, "lane_backward", "losses", "[L]");
  const auto grads = torch::autograd::grad({losses}, parameters, {at::ones_like(losses)},
                                           /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                           /*allow_unused=*/true);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (grads[i].defined()) {
      parameters[i].grad().copy_(grads[i]);
    } else {
      parameters[i].grad().zero_();
    }
  }
}

at::Tensor lane_gradient_norms(const std::vector<at::Tensor>& parameters) {
  const int64_t lanes = check(parameters, "lane_gradient_norms");
  const c10::NoGradGuard no_grad;
  const at::ScalarType type = sum_type(parameters[0]);
  const at::Tensor squares = at::zeros({lanes}, parameters[0].options().dtype(type));
  // Lane by lane: how a sum over all lanes at once is shared out depends on how many there are.
  for (const at::Tensor& parameter : parameters)
    for (int64_t lane = 0; lane < lanes; ++lane)
      squares.select(0, lane).add_(parameter.grad().select(0, lane).to(type).square().sum());
  return squares.sqrt_();
}

void clip_lane_gradients_(const std::vector<at::Tensor>& parameters, const at::Tensor& norms,
                          double max_norm) {
  const int64_t lanes = check(parameters, "clip_lane_gradients_");
  check_sizes(norms, {lanes}, "clip_lane_gradients_", "norms", "[L]");
  TORCH_CHECK(max_norm > 0, "clip_lane_gradients_: max_norm: want above 0, got ", max_norm);
  const c10::NoGradGuard no_grad;
  const at::Tensor factors = (max_norm / (norms + 1e-6)).clamp_max(1);
  for (const at::Tensor& parameter : parameters) parameter.grad().mul_(per_lane(factors, parameter));
}

}  // namespace espalier::lanes
