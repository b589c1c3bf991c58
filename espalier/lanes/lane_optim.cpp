#include "espalier/lanes/lane_optim.h"

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "espalier/lanes/lane_tensor.h"

namespace espalier::lanes {
namespace {

// By selection: a lane that is left out keeps its bits, though its new value be NaN.
void assign(const at::Tensor& to, const at::Tensor& apply, const at::Tensor& value) {
  to.copy_(at::where(apply, value, to));
}

}  // namespace

LaneOptimizer::LaneOptimizer(std::vector<at::Tensor> parameters, double learning_rate)
    : parameters_(std::move(parameters)) {
  TORCH_CHECK(!parameters_.empty(), "LaneOptimizer: parameters: want at least one, got none");
  const at::Tensor& first = parameters_[0];
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i];
    TORCH_CHECK(parameter.dim() >= 1 && parameter.size(0) == first.size(0) &&
                    parameter.scalar_type() == first.scalar_type() && parameter.device() == first.device(),
                "LaneOptimizer: parameters[", i, "]: want [", first.size(0), ",...] ", first.scalar_type(),
                " on ", first.device(), ", got ", parameter.sizes(), " ", parameter.scalar_type(), " on ",
                parameter.device());
    TORCH_CHECK(parameter.grad().defined() && parameter.grad().strides() == parameter.strides(),
                "LaneOptimizer: parameters[", i,
                "]: want a gradient that lies as its parameter does; make it with make_parameter()");
  }
  const at::TensorOptions options = first.options().requires_grad(false);
  learning_rates = at::full({first.size(0)}, learning_rate, options);
  frozen = at::zeros({first.size(0)}, options.dtype(at::kBool));
}

at::Tensor LaneOptimizer::add_state(const at::Tensor& like, double initial) {
  const at::Tensor state = zero_lanes(like.sizes(), like.options().requires_grad(false));
  if (initial != 0) state.fill_(initial);
  state_.push_back(state);
  initial_.push_back(initial);
  return state;
}

void LaneOptimizer::step(const at::Tensor& lanes) {
  const c10::NoGradGuard no_grad;
  at::Tensor apply = frozen.logical_not();
  if (lanes.defined()) {
    check_sizes(lanes, frozen.sizes(), "LaneOptimizer.step", "lanes", "[L]");
    apply = apply.logical_and(lanes);
  }
  count_step(apply);
  for (size_t i = 0; i < parameters_.size(); ++i) update(i, per_lane(apply, parameters_[i]));
}

void LaneOptimizer::reset(const at::Tensor& lanes) {
  check_sizes(lanes, frozen.sizes(), "LaneOptimizer.reset", "lanes", "[L]");
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < state_.size(); ++i) state_[i].masked_fill_(per_lane(lanes, state_[i]), initial_[i]);
}

void LaneOptimizer::zero_grad() {
  for (const at::Tensor& parameter : parameters_) parameter.grad().zero_();
}

LaneSGD::LaneSGD(std::vector<at::Tensor> parameters, const LaneSgdOptions& options)
    : LaneOptimizer(std::move(parameters), options.learning_rate), options_(options) {
  TORCH_CHECK(options.momentum >= 0, "LaneSGD: momentum: want at least 0, got ", options.momentum);
  TORCH_CHECK(!options.nesterov || options.momentum > 0, "LaneSGD: nesterov: want momentum with it, got 0");
  if (options.momentum > 0)
    for (const at::Tensor& parameter : parameters_) momenta_.push_back(add_state(parameter, 0));
}

void LaneSGD::update(size_t i, const at::Tensor& apply) {
  const at::Tensor& parameter = parameters_[i];
  at::Tensor direction = parameter.grad();
  if (options_.weight_decay != 0) direction = direction + parameter * options_.weight_decay;
  if (options_.momentum > 0) {
    assign(momenta_[i], apply, momenta_[i] * options_.momentum + direction);
    direction = options_.nesterov ? direction + momenta_[i] * options_.momentum : momenta_[i];
  }
  assign(parameter, apply, parameter - direction * per_lane(learning_rates, parameter));
}

LaneAdamW::LaneAdamW(std::vector<at::Tensor> parameters, const LaneAdamWOptions& options)
    : LaneOptimizer(std::move(parameters), options.learning_rate), options_(options) {
  for (const double beta : {options.beta1, options.beta2})
    TORCH_CHECK(beta >= 0 && beta < 1, "LaneAdamW: beta: want 0 to below 1, got ", beta);
  for (const at::Tensor& parameter : parameters_) means_.push_back(add_state(parameter, 0));
  for (const at::Tensor& parameter : parameters_) squares_.push_back(add_state(parameter, 0));
  const at::Tensor lanes = at::zeros({frozen.size(0)}, frozen.options().dtype(at::kDouble));
  beta1_power_ = add_state(lanes, 1);
  beta2_power_ = add_state(lanes, 1);
}

void LaneAdamW::count_step(const at::Tensor& lanes) {
  assign(beta1_power_, lanes, beta1_power_ * options_.beta1);
  assign(beta2_power_, lanes, beta2_power_ * options_.beta2);
}

void LaneAdamW::update(size_t i, const at::Tensor& apply) {
  const at::Tensor &parameter = parameters_[i], grad = parameter.grad();
  const auto type = parameter.scalar_type();
  const at::Tensor rates = learning_rates.to(at::kDouble);
  const at::Tensor step_sizes = (rates / (1 - beta1_power_)).to(type);    // [L]
  const at::Tensor root_correction = (1 - beta2_power_).sqrt().to(type);  // [L]
  const at::Tensor kept = (1 - rates * options_.weight_decay).to(type);   // [L]
  assign(means_[i], apply, means_[i] * options_.beta1 + grad * (1 - options_.beta1));
  assign(squares_[i], apply, squares_[i] * options_.beta2 + grad * grad * (1 - options_.beta2));
  const at::Tensor root = squares_[i].sqrt() / per_lane(root_correction, parameter) + options_.eps;
  assign(parameter, apply,
         parameter * per_lane(kept, parameter) - per_lane(step_sizes, parameter) * means_[i] / root);
}

}  // namespace espalier::lanes
