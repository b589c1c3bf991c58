#include "espalier/lanes/lane_gradients.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "espalier/lanes/lane_tensor.h"

namespace espalier::lanes {
namespace {

int64_t check(const std::vector<LaneParameter*>& parameters, const char* function) {
  TORCH_CHECK(!parameters.empty(), function, ": parameters: want at least one, got none");
  const int64_t lanes = parameters[0]->value().size(0);
  for (size_t i = 0; i < parameters.size(); ++i)
    TORCH_CHECK(parameters[i]->value().size(0) == lanes, function, ": parameters[", i, "]: want [", lanes,
                ",...], got ", parameters[i]->value().sizes());
  return lanes;
}

}  // namespace

void lane_backward(const at::Tensor& losses, const std::vector<LaneParameter*>& parameters) {
  TORCH_CHECK(losses.dim() == 1, "lane_backward: losses: want [L], got ", losses.sizes());
  torch::autograd::variable_list leaves;
  for (const LaneParameter* parameter : parameters) leaves.push_back(parameter->value());
  const auto grads = torch::autograd::grad({losses}, leaves, {at::ones_like(losses)},
                                           /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                           /*allow_unused=*/true);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (grads[i].defined()) {
      parameters[i]->gradient().copy_(grads[i]);
    } else {
      parameters[i]->gradient().zero_();
    }
  }
}

at::Tensor lane_gradient_norms(const std::vector<LaneParameter*>& parameters) {
  const int64_t lanes = check(parameters, "lane_gradient_norms");
  const c10::NoGradGuard no_grad;
  const at::Tensor& first = parameters[0]->value();
  const at::ScalarType type = sum_type(first);
  const at::Tensor squares = at::zeros({lanes}, first.options().dtype(type).requires_grad(false));
  // Lane by lane: how a sum over all lanes at once is shared out depends on how many there are.
  for (const LaneParameter* parameter : parameters)
    for (int64_t lane = 0; lane < lanes; ++lane)
      squares.select(0, lane).add_(parameter->gradient().select(0, lane).to(type).square().sum());
  return squares.sqrt_();
}

void clip_lane_gradients_(const std::vector<LaneParameter*>& parameters, const at::Tensor& norms,
                          double max_norm) {
  const int64_t lanes = check(parameters, "clip_lane_gradients_");
  check_sizes(norms, {lanes}, "clip_lane_gradients_", "norms", "[L]");
  TORCH_CHECK(max_norm > 0, "clip_lane_gradients_: max_norm: want above 0, got ", max_norm);
  const c10::NoGradGuard no_grad;
  const at::Tensor factors = (max_norm / (norms + 1e-6)).clamp_max(1);
  for (const LaneParameter* parameter : parameters)
    parameter->gradient().mul_(per_lane(factors, parameter->gradient()));
}

}  // namespace espalier::lanes
