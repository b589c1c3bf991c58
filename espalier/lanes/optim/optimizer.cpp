#include "espalier/lanes/optim/optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include "espalier/lanes/launch.h"
#include "espalier/lanes/optim/parameter_table.h"
#endif

namespace espalier::lanes {
namespace {

// By selection: a lane that is left out keeps its bits, though its new value be NaN.
void assign(const at::Tensor& to, const at::Tensor& apply, const at::Tensor& value) {
  to.copy_(at::where(per_lane(apply, to), value, to));
}

// a plus each lane's share of b; a lane that has none keeps a's bits, whatever b holds.
at::Tensor plus_share(const at::Tensor& a, const at::Tensor& b, const at::Tensor& shares) {
  const at::Tensor share = per_lane(shares, b);
  return at::where(share != 0, a + b * share, a);
}

}  // namespace

LaneOptimizer::LaneOptimizer(std::vector<LaneParameter*> parameters, double learning_rate,
                             double weight_decay)
    : parameters_(std::move(parameters)) {
  TORCH_CHECK(!parameters_.empty(), "LaneOptimizer: parameters: want at least one, got none");
  const at::Tensor& first = parameters_[0]->storage();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i]->storage();
    TORCH_CHECK(parameter.size(0) == first.size(0) && parameter.scalar_type() == first.scalar_type() &&
                    parameter.device() == first.device(),
                "LaneOptimizer: parameters[", i, "]: want [", first.size(0), ",...] ", first.scalar_type(),
                " on ", first.device(), ", got ", parameter.sizes(), " ", parameter.scalar_type(), " on ",
                parameter.device());
  }
  rates_storage_ = at::full({first.size(0)}, learning_rate, first.options());
  decays_storage_ = at::full({first.size(0)}, weight_decay, first.options().dtype(at::kDouble));
  frozen_storage_ = at::zeros({first.size(0)}, first.options().dtype(at::kBool));
  LaneOptimizer::use_lanes(parameters_[0]->value().size(0));
}

void LaneOptimizer::add(const at::Tensor& storage, double initial) {
  if (initial != 0) storage.fill_(initial);
  state_storage_.push_back(storage);
  state_.push_back(storage.narrow(0, 0, frozen.size(0)));
  initial_.push_back(initial);
}

size_t LaneOptimizer::add_parameter_state(double initial) {
  const size_t place = state_.size();
  for (const LaneParameter* parameter : parameters_) {
    const at::Tensor& like = parameter->storage();
    add(zero_lanes(like.sizes(), like.options(),
                   like.dim() == 5 ? format_of(like) : MemoryFormat::kChannelsLast),
        initial);
  }
  return place;
}

size_t LaneOptimizer::add_lane_state(double initial) {
  add(zero_lanes({frozen_storage_.size(0)}, frozen_storage_.options().dtype(at::kDouble)), initial);
  return state_.size() - 1;
}

void LaneOptimizer::use_lanes(int64_t lanes) {
  learning_rates = rates_storage_.narrow(0, 0, lanes);
  weight_decays = decays_storage_.narrow(0, 0, lanes);
  frozen = frozen_storage_.narrow(0, 0, lanes);
  for (size_t i = 0; i < state_.size(); ++i) state_[i] = state_storage_[i].narrow(0, 0, lanes);
}

void LaneOptimizer::step(const at::Tensor& lanes) {
  const c10::NoGradGuard no_grad;
  at::Tensor apply = frozen.logical_not();
  if (lanes.defined()) {
    check_sizes(lanes, frozen.sizes(), "LaneOptimizer.step", "lanes", "[L]");
    apply = apply.logical_and(lanes);
  }
  update(apply);
}

void LaneOptimizer::reset(const at::Tensor& lanes) {
  check_sizes(lanes, frozen.sizes(), "LaneOptimizer.reset", "lanes", "[L]");
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < state_.size(); ++i) state_[i].masked_fill_(per_lane(lanes, state_[i]), initial_[i]);
}

LaneSGD::LaneSGD(std::vector<LaneParameter*> parameters, const LaneSgdOptions& options)
    : LaneOptimizer(std::move(parameters), options.learning_rate, options.weight_decay), options_(options) {
  TORCH_CHECK(options.momentum >= 0, "LaneSGD: momentum: want at least 0, got ", options.momentum);
  TORCH_CHECK(!options.nesterov || options.momentum > 0, "LaneSGD: nesterov: want momentum with it, got 0");
  TORCH_CHECK(options.rate_factor >= 0 && options.warm_up_steps >= 0,
              "LaneSGD: rate_factor, warm_up_steps: want at least 0, got ", options.rate_factor, ", ",
              options.warm_up_steps);
  if (options.momentum > 0) momenta_ = add_parameter_state(0);
  if (share().takes_age()) ages_ = add_lane_state(0);
  const at::Tensor& first = this->parameters()[0]->storage();
  momentum_storage_ = at::full({first.size(0)}, options.momentum, first.options().dtype(at::kDouble));
  LaneSGD::use_lanes(frozen.size(0));
}

void LaneSGD::use_lanes(int64_t lanes) {
  LaneOptimizer::use_lanes(lanes);
  momentum_factors = momentum_storage_.narrow(0, 0, lanes);
}

RateShare LaneSGD::share() const {
  const auto warm_up = static_cast<double>(options_.warm_up_steps);
  return {.factor = options_.rate_factor,
          .warm_up = warm_up,
          .rise = warm_up > 0 ? 1 / warm_up : 0,
          .falls = options_.curve.has_value(),
          .curve = options_.curve.value_or(RateCurve::kConstant)};
}

at::Tensor LaneSGD::momentum(size_t parameter) const {
  return options_.momentum > 0 ? state_at(momenta_ + parameter) : at::Tensor();
}

at::Tensor LaneSGD::ages() const {
  return share().takes_age() ? state_at(ages_) : at::Tensor();
}

void LaneSGD::update(const at::Tensor& apply) {
  const RateShare share = this->share();
  TORCH_CHECK(!share.falls || (steps_left.defined() && steps_left.scalar_type() == at::kDouble &&
                               steps_left.numel() == 1 && steps_left.device() == apply.device()),
              "LaneSGD: steps_left: want [1] Double on ", apply.device(), " with a curve, got ",
              steps_left.defined() ? steps_left.toString() : "none");
#if ESPALIER_WITH_CUDA
  if (takes_update_kernel(parameters())) {
    SgdLanes lanes{.apply = apply.const_data_ptr<bool>(),
                   .rates = learning_rates.const_data_ptr(),
                   .momentum_factors = momentum_factors.const_data_ptr<double>(),
                   .weight_decays = weight_decays.const_data_ptr<double>()};
    if (share.takes_age()) {
      lanes.ages = state_at(ages_).const_data_ptr<double>();
      lanes.age_stride = state_at(ages_).stride(0);
    }
    if (share.falls) lanes.steps_left = steps_left.const_data_ptr<double>();
    const auto stream = stream_of(apply);
    for_tables(
        parameters(),
        [&](ParameterEntry& entry, size_t i) {
          if (options_.momentum > 0) entry.first = state_at(momenta_ + i).data_ptr();
        },
        [&](const ParameterTable& table, size_t) {
          C10_CUDA_CHECK(launch_sgd(table, lanes, share, options_.nesterov, stream));
        });
    if (share.takes_age()) state_at(ages_).add_(apply);
    return;
  }
#endif
  at::Tensor rates = learning_rates;  // [L]
  if (share.takes_age()) {
    const at::Tensor shares = state_at(ages_).cpu().clone();  // [L] f64
    const double left = share.falls ? *steps_left.cpu().const_data_ptr<double>() : 0;
    for (int64_t lane = 0; lane < shares.size(0); ++lane) {
      double& each = shares.mutable_data_ptr<double>()[lane * shares.stride(0)];
      each = share.at(each, left);
    }
    rates = rates * shares.to(rates.options());
    state_at(ages_).add_(apply);
  } else if (options_.rate_factor != 1) {
    rates = rates * options_.rate_factor;
  }
  for (size_t i = 0; i < parameters().size(); ++i) {
    const LaneParameter& parameter = *parameters()[i];
    const at::Tensor value = parameter.value().detach();
    at::Tensor direction = plus_share(parameter.gradient(), value, weight_decays);
    if (options_.momentum > 0) {
      const at::Tensor& momentum = state_at(momenta_ + i);
      assign(momentum, apply, plus_share(direction, momentum, momentum_factors));
      direction = options_.nesterov ? plus_share(direction, momentum, momentum_factors) : momentum;
    }
    assign(value, apply, value - direction * per_lane(rates, value));
    parameter.refresh();
  }
}

LaneAdamW::LaneAdamW(std::vector<LaneParameter*> parameters, const LaneAdamWOptions& options)
    : LaneOptimizer(std::move(parameters), options.learning_rate, options.weight_decay), options_(options) {
  for (const double beta : {options.beta1, options.beta2})
    TORCH_CHECK(beta >= 0 && beta < 1, "LaneAdamW: beta: want 0 to below 1, got ", beta);
  means_ = add_parameter_state(0);
  squares_ = add_parameter_state(0);
  beta1_power_ = add_lane_state(1);
  beta2_power_ = add_lane_state(1);
}

void LaneAdamW::update(const at::Tensor& apply) {
  const at::Tensor &power1 = state_at(beta1_power_), &power2 = state_at(beta2_power_);
  assign(power1, apply, power1 * options_.beta1);
  assign(power2, apply, power2 * options_.beta2);
  const at::Tensor rates = learning_rates.to(at::kDouble);
  const at::Tensor step_sizes = rates / (1 - power1);      // [L] f64
  const at::Tensor root_correction = (1 - power2).sqrt();  // [L] f64
  const at::Tensor kept = 1 - rates * weight_decays;       // [L] f64
#if ESPALIER_WITH_CUDA
  if (takes_update_kernel(parameters())) {
    const AdamScalars scalars{options_.beta1, options_.beta2, options_.eps};
    const auto stream = stream_of(apply);
    for_tables(
        parameters(),
        [&](ParameterEntry& entry, size_t i) {
          entry.first = state_at(means_ + i).data_ptr();
          entry.second = state_at(squares_ + i).data_ptr();
        },
        [&](const ParameterTable& table, size_t) {
          C10_CUDA_CHECK(
              launch_adamw(table, scalars, apply.const_data_ptr<bool>(), step_sizes.const_data_ptr<double>(),
                           root_correction.const_data_ptr<double>(), kept.const_data_ptr<double>(), stream));
        });
    return;
  }
#endif
  for (size_t i = 0; i < parameters().size(); ++i) {
    const LaneParameter& parameter = *parameters()[i];
    const at::Tensor value = parameter.value().detach(), grad = parameter.gradient();
    const at::Tensor &mean = state_at(means_ + i), &square = state_at(squares_ + i);
    assign(mean, apply, mean * options_.beta1 + grad * (1 - options_.beta1));
    assign(square, apply, square * options_.beta2 + grad * grad * (1 - options_.beta2));
    const at::Tensor root = square.sqrt() / per_lane(root_correction, value) + options_.eps;
    assign(value, apply, value * per_lane(kept, value) - per_lane(step_sizes, value) * mean / root);
    parameter.refresh();
  }
}

}  // namespace espalier::lanes
