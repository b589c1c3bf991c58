#include "espalier/policy/acting.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "espalier/policy/action/uniforms.h"

namespace espalier::policy {
namespace {

ObserverOptions observer_options(const PolicyNetwork& network, const ActingOptions& options) {
  return {.lanes = options.lanes,
          .space = network.options().space,
          .episode_length = options.episode_length,
          .least_healthy_norm = options.least_healthy_norm,
          .largest_healthy_norm = options.largest_healthy_norm,
          .device = network.options().tensors.device()};
}

}  // namespace

Acting::Acting(const PolicyNetwork& network, const MaskRules& rules, const ActionSampler& sampler,
               const ValueNormalizer& values, const ActingOptions& options)
    : network_(network),
      rules_(rules),
      sampler_(sampler),
      values_(values),
      options_(options),
      observer_(observer_options(network, options)),
      normalizer_(network.options().num_features, network.options().tensors),
      rollout_(network.options(), {.lanes = options.lanes, .steps = options.episode_length}),
      state_(network.initial_state(options.lanes)) {
  const int64_t features = num_features(network.options().space.num_slots);
  TORCH_CHECK(network.options().num_features == features, "Acting: the network's num_features: want ",
              features, ", got ", network.options().num_features);
  const int64_t lanes = options.lanes;
  const at::TensorOptions floats = network.options().tensors, flags = floats.dtype(at::kBool),
                          numbers = floats.dtype(at::kLong);
  round_ = at::zeros({1}, numbers);
  step_ = at::zeros({1}, numbers);
  clears_ = at::zeros({lanes}, flags);
  actions_ = at::zeros({lanes, kNumHeads}, numbers);
  illegal_ = at::zeros({lanes}, flags);
  no_flags_ = at::zeros({lanes}, flags);
  no_values_ = at::zeros({lanes}, floats);
}

void Acting::begin(int64_t round, ActingMode mode) {
  mode_ = mode;
  round_.fill_(round);
  for (const at::Tensor& cleared : {step_, actions_}) cleared.zero_();
  if (mode != ActingMode::kLearning) return;
  rollout_.begin();
  normalizer_.publish();
}

void Acting::act(const RawObservation& readings, const at::Tensor& frozen) {
  const c10::NoGradGuard no_grad;
  clears_.copy_(step_.eq(0).expand_as(clears_));
  observer_.observe(readings, /*last_op=*/actions_.select(1, 0), step_, clears_);
  const at::Tensor& features = observer_.seen().features;
  if (mode_ == ActingMode::kLearning) normalizer_.collect(features, frozen.logical_not());
  const Observation seen{normalizer_.normalise(features), observer_.seen().blueprints};

  SlotFields fields = observer_.fields();
  fields.frozen = frozen;
  const ActionMasks masks = rules_.masks_of(fields);
  RecurrentState next = state_;
  const NetworkOutput out = network_.step(seen, next, clears_);
  const bool draws = mode_ != ActingMode::kLikeliest;
  at::Tensor uniforms;
  if (draws)
    uniforms = choice_uniforms(options_.seed, round_, step_, options_.lanes, sampler_.space().num_choices());
  const Decision decision =
      sampler_.decide(out.logits, masks, uniforms, draws ? Choosing::kSample : Choosing::kLikeliest);
  if (mode_ == ActingMode::kLearning)
    rollout_.store(StepDecision{seen, state_, clears_, decision, values_.denormalise(out.value)});

  state_.hidden.copy_(next.hidden);
  state_.cell.copy_(next.cell);
  actions_.copy_(decision.actions);
  illegal_.copy_(masks.illegal_state);
  step_.add_(1);
}

void Acting::finish_step(const Reward& reward) {
  const c10::NoGradGuard no_grad;
  if (mode_ == ActingMode::kLearning)
    rollout_.store(StepOutcome{.reward = reward.reward(),
                               .ended = reward.ended(),
                               .truncated = no_flags_,
                               .bootstrap = no_values_,
                               .counts = reward.counts()});
}

std::vector<NamedTensor> Acting::episode_state() const {
  std::vector<NamedTensor> state{{"step", step_},
                                 {"clears", clears_},
                                 {"actions", actions_},
                                 {"illegal", illegal_},
                                 {"state.hidden", state_.hidden},
                                 {"state.cell", state_.cell}};
  for (NamedTensor& each : observer_.state()) state.push_back(std::move(each));
  for (NamedTensor& each : rollout_.named_tensors()) state.push_back(std::move(each));
  return state;
}

std::vector<NamedTensor> Acting::state() const {
  std::vector<NamedTensor> state = normalizer_.state();
  state.push_back({"acting.round", round_});
  return state;
}

}  // namespace espalier::policy
