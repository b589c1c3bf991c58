// The trainer of train/ppo as a plain loop: lane after lane, separate torch modules, eager, every value read
// by itself where it is needed. What the stacked one is compared with.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "espalier/data/iterator.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/grow/network_stack.h"
#include "espalier/policy/acting.h"
#include "espalier/policy/action/uniforms.h"
#include "espalier/train/population/episode_seed.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/step/learning_rate.h"
#include "tests/grow/plain_network.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::train::testing {

// What one lane showed in one step.
struct PlainStep {
  double train_loss = 0;
  double validation_loss = 0;
  double validation_accuracy = 0;
  std::vector<SlotState> states;
  std::array<int64_t, policy::kNumHeads> choice{};
  double reward = 0;  // for the decision before
};

class PlainLane {
 public:
  PlainLane(const PpoConfig& options, const grow::CnnHostOptions& host, const grow::NetworkStack& population,
            int64_t lane)
      : options_(options),
        lane_(lane),
        life_(life_options(options, population)),
        observer_({.space = space_of(population), .episode_length = options.population.epochs - 1}),
        slots_(population.num_slots()) {
    network_.options = host;
    network_.kinds = population.blueprints().names();
    accuracy_before_.resize(static_cast<size_t>(slots_));
    kept_.assign(static_cast<size_t>(slots_), std::numeric_limits<double>::quiet_NaN());
  }

  static policy::ActionSpace space_of(const grow::NetworkStack& population) {
    return {.num_slots = population.num_slots(), .num_blueprints = population.blueprints().size()};
  }

  grow::Lifecycle& life() { return life_; }
  std::vector<SlotState> states() const { return {life_.states().begin(), life_.states().end()}; }
  const PlainStep& shown() const { return shown_; }

  void begin_epoch() {
    for (const grow::StageMove& move : life_.begin_epoch())
      if (move.to == SeedStage::kTraining)
        accuracy_before_[static_cast<size_t>(move.slot)] =
            epoch_ == 0 ? std::nullopt : std::optional(shown_.validation_accuracy);
  }

  // Values that the lane has not yet come from the nursery; those of seeds that are gone go.
  void take_new_values(grow::NetworkStack& nursery) {
    grow::testing::Values now;
    for (const auto& named : nursery.lane_values(lane_)) {
      const auto known = network_.values.find(named.name);
      now[named.name] = known != network_.values.end() ? known->second : plain(named.tensor.detach());
    }
    network_.values = std::move(now);
    const auto is_gone = [&](const auto& each) { return !network_.values.contains(each.first); };
    std::erase_if(momenta_, is_gone);
    std::erase_if(ages_, is_gone);
  }

  void train(data::GatherIterator& iterator, const RateSchedule& schedule, int64_t data_epoch) {
    network_.states = states();
    network_.trains = true;
    iterator.begin_epoch(static_cast<uint64_t>(data_epoch));
    double loss_sum = 0, hits = 0, samples = 0, host_norms = 0;
    std::vector<double> norms(static_cast<size_t>(slots_), 0);
    int64_t batches = 0;
    while (const auto batch = iterator.next()) {
      const data::EnvBatch& own = (*batch)[static_cast<size_t>(lane_)];
      for (size_t slot = 0; slot < network_.states.size(); ++slot)
        network_.states[slot].amplitude =
            amplitude_within(life_.at(0, static_cast<int64_t>(slot)),
                             static_cast<double>(batches + 1) / static_cast<double>(iterator.length()));
      std::vector<std::string> names;
      std::vector<at::Tensor> leaves;
      for (auto& [name, value] : network_.values) {
        if (name.find(".running_") != std::string::npos) continue;
        value = value.detach().set_requires_grad(true);
        names.push_back(name);
        leaves.push_back(value);
      }
      const at::Tensor logits = network_.forward(plain(own.fields[0]));
      const at::Tensor loss = at::cross_entropy_loss(logits, own.labels);
      auto gradients = torch::autograd::grad({loss}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
      loss_sum += loss.item<double>() * static_cast<double>(own.labels.size(0));
      hits += logits.argmax(1).eq(own.labels).sum().item<double>();
      samples += static_cast<double>(own.labels.size(0));
      host_norms += norm_of("host.", names, gradients);
      for (int64_t slot = 0; slot < slots_; ++slot)
        if (const std::string prefix = prefix_of(slot); !prefix.empty())
          norms[static_cast<size_t>(slot)] += norm_of(prefix, names, gradients);
      clip(names, gradients);
      const double rate =
          options_.population.learning_rate * schedule.at(epoch_ * iterator.length() + batches);
      for (size_t i = 0; i < names.size(); ++i)
        if (!is_frozen(names[i])) update(names[i], gradients[i], rate);
      batches += 1;
    }
    shown_.train_loss = loss_sum / samples;
    train_accuracy_ = hits / samples;
    host_norm_ = host_norms / static_cast<double>(batches);
    norms_ = norms;
    for (double& norm : norms_) norm /= static_cast<double>(batches);
  }

  void validate(data::GatherIterator& iterator) {
    const auto [loss, accuracy] = score(iterator, /*without=*/-1);
    shown_.validation_loss = loss;
    shown_.validation_accuracy = accuracy;
    shown_.states = states();
    points_.assign(static_cast<size_t>(slots_), std::nullopt);
  }

  void measure_without(data::GatherIterator& iterator, int64_t slot) {
    const SlotState& state = life_.at(0, slot);
    if (!holds_seed(state.stage) || !(state.amplitude > 0)) return;
    points_[static_cast<size_t>(slot)] = 100 * (shown_.validation_accuracy - score(iterator, slot).second);
  }

  // added: parameters over the host's.
  void act(const policy::PolicyNetwork& network, const policy::MaskRules& rules,
           const policy::ActionSampler& sampler, double added) {
    const c10::NoGradGuard no_grad;
    const bool is_last = epoch_ + 1 == options_.population.epochs;
    if (epoch_ > 0) shown_.reward = reward(added, is_last);
    for (int64_t slot = 0; slot < slots_; ++slot) {
      const auto s = static_cast<size_t>(slot);
      if (life_.at(0, slot).num_seeds != seeds_seen_[s]) kept_[s] = std::numeric_limits<double>::quiet_NaN();
      seeds_seen_[s] = life_.at(0, slot).num_seeds;
      if (points_[s]) kept_[s] = *points_[s];
    }
    states_before_ = states();
    accuracy_at_act_ = shown_.validation_accuracy;
    shown_.choice = {};
    if (!is_last) choose(network, rules, sampler, added);
    last_op_ = shown_.choice[0];
    const SeedAction action = policy::to_seed_action(shown_.choice);
    if (action.op != SeedOp::kWait) life_.act(0, action, measured(action.slot));
    epoch_ += 1;
  }

 private:
  static grow::LifecycleOptions life_options(const PpoConfig& options, const grow::NetworkStack& population) {
    grow::LifecycleOptions life{.num_blueprints = population.blueprints().size(),
                                .embargo_steps = static_cast<int32_t>(options.population.embargo)};
    for (const grow::SlotSpec& slot : population.slots()) life.slots.push_back(slot.name);
    return life;
  }

  // As torch lays tensors out by default: in channels-last its group norm crashes where the input needs no
  // gradient.
  static at::Tensor plain(const at::Tensor& tensor) { return tensor.clone(at::MemoryFormat::Contiguous); }

  // "r0c1.conv_light." of the seed in the slot; nothing where there is none.
  std::string prefix_of(int64_t slot) const {
    const SlotState& state = life_.at(0, slot);
    if (!holds_seed(state.stage)) return {};
    return life_.options().slots[static_cast<size_t>(slot)] + "." +
           network_.kinds[static_cast<size_t>(state.blueprint)] + ".";
  }

  static double norm_of(const std::string& prefix, const std::vector<std::string>& names,
                        const std::vector<at::Tensor>& gradients) {
    double squares = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!names[i].starts_with(prefix) || names[i].starts_with(prefix + "gate.")) continue;
      if (gradients[i].defined()) squares += gradients[i].to(at::kDouble).square().sum().item<double>();
    }
    return std::sqrt(squares);
  }

  bool is_frozen(const std::string& name) const {
    for (int64_t slot = 0; slot < slots_; ++slot) {
      const std::string prefix = prefix_of(slot);
      if (prefix.empty() || !name.starts_with(prefix)) continue;
      const SlotState& state = life_.at(0, slot);
      if (is_removing(state)) return true;
      if (!name.starts_with(prefix + "gate.")) return false;
      return state.blend_operator != BlendOperator::kGate || state.stage == SeedStage::kTraining;
    }
    return false;
  }

  // The curves in words of their own.
  static float amplitude_within(const SlotState& state, double share) {
    if (!is_moving(state) || share == 1) return state.amplitude;
    const double time = (state.ramp_done - 1 + share) / state.ramp_steps;
    static const std::map<BlendCurve, double> kSteepness{
        {BlendCurve::kSigmoid6, 6}, {BlendCurve::kSigmoid12, 12}, {BlendCurve::kSigmoid24, 24}};
    double way = time;
    if (state.curve == BlendCurve::kCosine) way = (1 - std::cos(3.14159265358979323846 * time)) / 2;
    if (const auto found = kSteepness.find(state.curve); found != kSteepness.end()) {
      const auto logistic = [&](double t) { return 1 / (1 + std::exp(-found->second * (t - 0.5))); };
      way = (logistic(time) - logistic(0)) / (logistic(1) - logistic(0));
    }
    return static_cast<float>(state.ramp_start + (state.target - state.ramp_start) * way);
  }

  // What is clipped together: the host, a seed, its gate.
  static std::string group_of(const std::string& name) {
    if (name.starts_with("host.")) return "host.";
    const size_t gate = name.find(".gate.");
    return gate != std::string::npos ? name.substr(0, gate + 6)
                                     : name.substr(0, name.find('.', name.find('.') + 1) + 1);
  }

  void clip(const std::vector<std::string>& names, std::vector<at::Tensor>& gradients) const {
    std::map<std::string, double> squares;
    for (size_t i = 0; i < names.size(); ++i)
      if (gradients[i].defined())
        squares[group_of(names[i])] += gradients[i].to(at::kDouble).square().sum().item<double>();
    for (size_t i = 0; i < names.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const double norm = std::sqrt(squares[group_of(names[i])]);
      gradients[i] = gradients[i] * std::min(1.0, options_.population.clip / (norm + 1e-6));
    }
  }

  // SGD with Nesterov's momentum, as torch.optim.SGD has it; a seed's rate warms up with its age.
  void update(const std::string& name, const at::Tensor& gradient, double rate) {
    const at::Tensor value = network_.values.at(name).detach();
    const PopulationConfig& training = options_.population;
    at::Tensor direction = value * training.weight_decay;
    if (gradient.defined()) direction = direction + gradient;
    if (!name.starts_with("host.")) {
      const double age = ages_[name]++;
      rate *= training.seed_rate * std::min(1.0, (age + 0.5) / static_cast<double>(training.seed_warm_up));
    }
    at::Tensor& momentum = momenta_[name];
    momentum = momentum.defined() ? momentum * training.momentum + direction : direction.clone();
    value.sub_((direction + momentum * training.momentum) * rate);
  }

  std::pair<double, double> score(data::GatherIterator& iterator, int64_t without) {
    const c10::NoGradGuard no_grad;
    grow::testing::PlainNetwork network = network_;
    network.states = states();
    network.trains = false;
    if (without >= 0) network.states[static_cast<size_t>(without)].amplitude = 0;
    double loss = 0, hits = 0, samples = 0;
    iterator.begin_epoch(0);
    while (const auto batch = iterator.next()) {
      const data::EnvBatch& own = batch->front();
      const at::Tensor logits = network.forward(plain(own.fields[0]));
      loss +=
          at::cross_entropy_loss(logits, own.labels).item<double>() * static_cast<double>(own.labels.size(0));
      hits += logits.argmax(1).eq(own.labels).sum().item<double>();
      samples += static_cast<double>(own.labels.size(0));
    }
    return {loss / samples, hits / samples};
  }

  grow::SeedMeasurements measured(int64_t slot) const {
    const auto s = static_cast<size_t>(slot);
    grow::SeedMeasurements measured{.contribution_points = points_[s]};
    if (!holds_seed(life_.at(0, slot).stage)) return measured;
    if (norms_[s] != 0) {
      measured.gradient_norm = norms_[s];
      measured.gradient_ratio = norms_[s] / host_norm_;
    }
    if (accuracy_before_[s])
      measured.improvement_points = 100 * (shown_.validation_accuracy - *accuracy_before_[s]);
    return measured;
  }

  void choose(const policy::PolicyNetwork& network, const policy::MaskRules& rules,
              const policy::ActionSampler& sampler, double added) {
    using policy::LaneReading;
    const auto number = [](int64_t value) { return at::full({1}, value, at::kLong); };
    policy::RawObservation readings = policy::empty_raw_observation(
        {.space = network.options().space, .episode_length = options_.population.epochs - 1});
    const auto put = [&](LaneReading which, double value) {
      readings.lanes[0][static_cast<int64_t>(which)] = value;
    };
    put(LaneReading::kTrainLoss, shown_.train_loss);
    put(LaneReading::kTrainAccuracy, train_accuracy_);
    put(LaneReading::kValidationLoss, shown_.validation_loss);
    put(LaneReading::kValidationAccuracy, shown_.validation_accuracy);
    put(LaneReading::kGradientNorm, host_norm_);
    put(LaneReading::kAddedParameters, added);
    put(LaneReading::kBudgetUsed, added / options_.parameter_budget);
    for (int64_t slot = 0; slot < slots_; ++slot) {
      const auto s = static_cast<size_t>(slot);
      if (norms_[s] != 0)
        readings.slots[0][slot][static_cast<int64_t>(policy::SlotReading::kGradientNorm)] = norms_[s];
      if (points_[s])
        readings.slots[0][slot][static_cast<int64_t>(policy::SlotReading::kContributionPoints)] = *points_[s];
    }
    const std::vector<SlotState> now = states();
    std::memcpy(readings.states.mutable_data_ptr<uint8_t>(), now.data(), now.size() * sizeof(SlotState));
    const at::Tensor clears = at::full({1}, epoch_ == 0, at::kBool);
    observer_.observe(readings, number(last_op_), number(epoch_), clears);
    policy::SlotFields fields = observer_.fields();
    const policy::ActionMasks masks = rules.masks_of(fields);
    if (epoch_ == 0) memory_ = network.initial_state(1);
    // In the first round nothing is known to normalise with.
    const policy::Observation seen{observer_.seen().features.clamp(-10, 10), observer_.seen().blueprints};
    const policy::NetworkOutput out = network.step(seen, memory_, clears);
    const at::Tensor uniforms = policy::choice_uniforms(options_.population.seed, number(0), number(epoch_),
                                                        lane_ + 1, sampler.space().num_choices())
                                    .narrow(0, lane_, 1);
    const policy::Decision decision = sampler.decide(out.logits, masks, uniforms, policy::Choosing::kSample);
    for (int64_t head = 0; head < policy::kNumHeads; ++head)
      shown_.choice[static_cast<size_t>(head)] = decision.actions[0][head].item<int64_t>();
  }

  static double potential(const std::vector<SlotState>& states) {
    static const std::map<SeedStage, double> kPhi{{SeedStage::kGerminated, 0.1},
                                                  {SeedStage::kTraining, 0.2},
                                                  {SeedStage::kBlending, 0.4},
                                                  {SeedStage::kHolding, 0.6},
                                                  {SeedStage::kFossilized, 1.0}};
    double sum = 0;
    for (const SlotState& state : states)
      if (const auto found = kPhi.find(state.stage); found != kPhi.end() && !is_removing(state))
        sum += found->second;
    return sum;
  }

  // docs/ppo.md, in words of its own.
  double reward(double added, bool is_last) const {
    double sum = 100 * (shown_.validation_accuracy - accuracy_at_act_) - 0.01 * added;
    if (last_op_ != 0) sum -= 0.01;
    sum += (is_last ? 0 : options_.policy.gamma * potential(states())) - potential(states_before_);
    if (!is_last) return sum;
    int64_t good = 0;
    for (int64_t slot = 0; slot < slots_; ++slot) {
      const auto s = static_cast<size_t>(slot);
      const double points = points_[s] ? *points_[s] : kept_[s];
      good += life_.at(0, slot).stage == SeedStage::kFossilized && points > 0;
    }
    return sum + 3 * shown_.validation_accuracy + 2 * static_cast<double>(good);
  }

  PpoConfig options_;
  int64_t lane_;
  grow::Lifecycle life_;
  policy::Observer observer_;
  int64_t slots_;
  grow::testing::PlainNetwork network_;
  std::map<std::string, at::Tensor> momenta_;
  std::map<std::string, double> ages_;  // updates so far
  policy::RecurrentState memory_;
  PlainStep shown_;
  std::vector<SlotState> states_before_;
  std::vector<std::optional<double>> accuracy_before_;  // on validation, when TRAINING began
  std::vector<std::optional<double>> points_;           // contributions measured in this step
  std::vector<double> kept_;                            // the last that were
  std::vector<int32_t> seeds_seen_ = std::vector<int32_t>(16, 0);
  std::vector<double> norms_;
  double host_norm_ = 0;
  double train_accuracy_ = 0;
  double accuracy_at_act_ = 0;
  int64_t last_op_ = 0;
  int64_t epoch_ = 0;
};

}  // namespace espalier::train::testing
