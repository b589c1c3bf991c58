#include "espalier/policy/acting.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "espalier/policy/uniforms.h"

namespace espalier::policy {
namespace {

ObserverOptions observer_options(const PolicyNetwork& network, const ActingOptions& options) {
  return {.lanes = options.lanes,
          .space = network.options().space,
          .episode_length = options.episode_length,
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
      signs_(empty_signs(observer_options(network, options))),
      observer_(observer_options(network, options)),
      normalizer_(network.options().num_features, network.options().tensors),
      reward_(options.lanes, network.options().space.num_slots,
              {.mode = options.reward, .gamma = options.gamma}, network.options().tensors.device()),
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
  failed_ = at::zeros({lanes}, flags);
  frozen_ = at::zeros({lanes}, flags);
  is_last_ = at::zeros({1}, flags);
  accuracy_before_ = at::zeros({lanes}, floats);
  states_before_ = signs_.states.clone();
  no_flags_ = at::zeros({lanes}, flags);
  no_values_ = at::zeros({lanes}, floats);
  term_sums_ = at::zeros({lanes, kNumRewardTerms}, floats);
}

void Acting::begin(int64_t round, Playing playing) {
  playing_ = playing;
  round_.fill_(round);
  for (const at::Tensor& cleared : {step_, actions_, failed_, frozen_, term_sums_}) cleared.zero_();
  if (playing != Playing::kLearning) return;
  rollout_.begin();
  normalizer_.publish();
}

void Acting::act() {
  const c10::NoGradGuard no_grad;
  clears_.copy_(step_.eq(0).expand_as(clears_));
  observer_.observe(signs_, /*last_op=*/actions_.select(1, 0), step_, clears_);
  const at::Tensor& features = observer_.seen().features;
  if (playing_ == Playing::kLearning) normalizer_.collect(features, frozen_.logical_not());
  const Observation seen{normalizer_.normalise(features), observer_.seen().blueprints};

  SlotFields fields = observer_.fields();
  fields.frozen = frozen_;
  const ActionMasks masks = rules_.masks_of(fields);
  RecurrentState next = state_;
  const NetworkOutput out = network_.step(seen, next, clears_);
  const bool draws = playing_ != Playing::kLikeliest;
  at::Tensor uniforms;
  if (draws)
    uniforms = choice_uniforms(options_.seed, round_, step_, options_.lanes, sampler_.space().num_choices());
  const Decision decision =
      sampler_.decide(out.logits, masks, uniforms, draws ? Choosing::kSample : Choosing::kLikeliest);
  if (playing_ == Playing::kLearning)
    rollout_.store(StepDecision{seen, state_, clears_, decision, values_.denormalise(out.value)});

  state_.hidden.copy_(next.hidden);
  state_.cell.copy_(next.cell);
  actions_.copy_(decision.actions);
  illegal_.copy_(masks.illegal_state);
  accuracy_before_.copy_(signs_.lanes.select(1, static_cast<int64_t>(LaneSign::kValidationAccuracy)));
  states_before_.copy_(signs_.states);
  step_.add_(1);
}

void Acting::settle() {
  const c10::NoGradGuard no_grad;
  is_last_.copy_(step_.ge(options_.episode_length));
  reward_.compute({.accuracy_before = accuracy_before_,
                   .states_before = states_before_,
                   .after = signs_,
                   .contributions = observer_.contributions(),
                   .op = actions_.select(1, 0),
                   .is_last = is_last_,
                   .failed = failed_,
                   .frozen = frozen_});
  if (playing_ == Playing::kLearning)
    rollout_.store(StepOutcome{.reward = reward_.reward(),
                               .ended = reward_.ended(),
                               .truncated = no_flags_,
                               .bootstrap = no_values_,
                               .counts = reward_.counts()});
  term_sums_.add_(reward_.terms());
  frozen_.logical_or_(failed_);
}

std::vector<NamedTensor> Acting::episode_state() const {
  std::vector<NamedTensor> state{{"signs.lanes", signs_.lanes},
                                 {"signs.slots", signs_.slots},
                                 {"signs.states", signs_.states},
                                 {"failed", failed_},
                                 {"frozen", frozen_},
                                 {"step", step_},
                                 {"clears", clears_},
                                 {"actions", actions_},
                                 {"illegal", illegal_},
                                 {"is_last", is_last_},
                                 {"state.hidden", state_.hidden},
                                 {"state.cell", state_.cell},
                                 {"accuracy_before", accuracy_before_},
                                 {"states_before", states_before_},
                                 {"term_sums", term_sums_}};
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
