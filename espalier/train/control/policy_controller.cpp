#include "espalier/train/control/policy_controller.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <array>

#include "espalier/core/error.h"
#include "espalier/policy/checkpoint.h"
#include "espalier/run/archive.h"

namespace espalier::train {
namespace {

using policy::kNumHeads;

const PolicyOptions& checked(const PolicyOptions& options) {
  if (options.episode_length < 2)
    fail_usage("episode-length: want at least 2 epochs, so that there is one decision, got {}",
               options.episode_length);
  if (!options.enabled_slots.empty() && std::ssize(options.enabled_slots) != options.space.num_slots)
    fail_usage("enabled slots: want {}, got {}", options.space.num_slots, options.enabled_slots.size());
  return options;
}

policy::NetworkOptions network_options(const PolicyOptions& options) {
  return {.space = options.space,
          .num_features = policy::num_features(options.space.num_slots),
          .encoder_size = options.encoder_size,
          .hidden_size = options.hidden_size,
          .seed = options.seed,
          .tensors = at::TensorOptions(at::kFloat).device(options.device)};
}

at::Tensor enabled_slots(const PolicyOptions& options) {
  const at::Tensor enabled = at::ones({options.space.num_slots}, at::kBool);
  for (size_t slot = 0; slot < options.enabled_slots.size(); ++slot)
    enabled.select(0, static_cast<int64_t>(slot)).fill_(static_cast<bool>(options.enabled_slots[slot]));
  return enabled.to(options.device);
}

policy::ActingOptions acting_options(const PolicyOptions& options) {
  return {.lanes = options.lanes,
          .episode_length = options.episode_length - 1,
          .least_healthy_norm = options.gates.min_gradient_norm,
          .largest_healthy_norm = options.gates.max_gradient_norm,
          .seed = options.seed};
}

}  // namespace

PolicyController::PolicyController(const PolicyOptions& options)
    : options_(checked(options)),
      network_(network_options(options)),
      rules_(options.space, enabled_slots(options), options.max_seeds),
      sampler_(options.space, rules_.blueprints()),
      ppo_(network_, sampler_, options.ppo),
      acting_(network_, rules_, sampler_, ppo_.values(), acting_options(options)),
      carried_(
          at::zeros({kNumHeads + 1, options.lanes}, at::TensorOptions(at::kDouble).device(options.device))),
      diagnostics_(
          at::zeros({policy::kNumUpdateValues}, at::TensorOptions(at::kFloat).device(options.device))),
      graphs_({.device = options.device, .graphs = options.graphs}) {}

void PolicyController::begin_episode(int64_t round) {
  acting_.begin(round, mode_);
}

at::Tensor PolicyController::act(const EpochReadings& readings) {
  if (readings.epoch >= options_.episode_length)
    fail("policy: the episode of {} epochs is over; this is a bug of who plays it", options_.episode_length);
  graphs_.run(fmt::format("act {} {}", static_cast<int>(mode_), static_cast<int>(readings.part)),
              [&] { body(readings); });
  return carried_;
}

void PolicyController::body(const EpochReadings& readings) {
  const c10::NoGradGuard no_grad;
  using policy::EpisodePart;
  if (readings.part != EpisodePart::kFirst) acting_.finish_step(readings.account.reward());
  if (readings.part == EpisodePart::kLast) {
    carried_.zero_();  // nothing is left to decide: all wait
    return;
  }
  acting_.act(readings.observed, readings.account.frozen());
  carried_.narrow(0, 0, kNumHeads).copy_(acting_.actions().t());
  carried_.select(0, kNumHeads).copy_(acting_.illegal());
}

std::vector<SeedAction> PolicyController::decide(std::span<const LaneReport> lanes) {
  std::vector<SeedAction> actions;
  for (const LaneReport& lane : lanes) {
    if (lane.carried.size() != kNumHeads + 1)
      fail("lane {}: the policy's choice did not come; this is a bug of who trains", lane.lane);
    if (lane.carried[kNumHeads] != 0)
      fail("lane {}: no action was legal after epoch {}, not even WAIT; this is a bug of the lifecycle",
           lane.lane, lane.epoch);
    std::array<int64_t, kNumHeads> choice{};
    for (size_t head = 0; head < kNumHeads; ++head) choice[head] = static_cast<int64_t>(lane.carried[head]);
    actions.push_back(policy::to_seed_action(choice));
  }
  return actions;
}

at::Tensor PolicyController::update(double progress) {
  ppo_.set_progress(progress);
  graphs_.run("update", [this] { diagnostics_.copy_(ppo_.update(acting_.rollout())); });
  return diagnostics_;
}

void PolicyController::visit_state(run::StateArchive& archive) {
  for (const NamedTensor& named : state()) archive.tensor(named.name, named.tensor);
  for (const NamedTensor& named : acting_.episode_state())
    archive.tensor("episode." + named.name, named.tensor);
}

std::vector<NamedTensor> PolicyController::state() const {
  return policy::state_of(network_, ppo_, acting_);
}

}  // namespace espalier::train
