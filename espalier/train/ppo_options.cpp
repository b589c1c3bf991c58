#include "espalier/train/ppo_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/list_text.h"
#include "espalier/data/resident.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/site.h"

namespace espalier::train {
namespace {

// Which slots --slots names; a name that is none is refused with the list.
std::vector<bool> enabled_slots(const EnvironmentOptions& options, const grow::Population& population) {
  std::vector<std::string> names;
  for (const grow::SlotSpec& slot : population.slots()) names.push_back(slot.name);
  std::vector<bool> enabled(names.size(), options.slots.empty());
  if (options.slots.empty()) return enabled;
  for (const std::string& name : split_list(options.slots)) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      fail_usage("--slots: '{}' is none of this host's: {}", name, fmt::join(names, ", "));
    enabled[static_cast<size_t>(found - names.begin())] = true;
  }
  return enabled;
}

}  // namespace

at::Device policy_device_of(const EnvironmentOptions& options) {
  return data::torch_device(options.policy_device.empty() ? devices_of(options.population).front()
                                                          : data::choose_device(options.policy_device));
}

PopulationOptions population_options(const EnvironmentOptions& options, const DeviceName& device) {
  PopulationOptions population = options.population;
  if (options.gpu_preload) population.resident.residency = "device";
  const bool is_cpu = device.kind == DeviceName::Kind::kCpu;
  population.precision = is_cpu || !options.amp ? "fp32" : options.amp_dtype == "float16" ? "fp16" : "bf16";
  return population;
}

policy::RewardOptions reward_options(const PolicyTrainingOptions& policy) {
  return {.mode = policy.reward == "sparse" ? policy::RewardMode::kSparse : policy::RewardMode::kShaped,
          .gamma = policy.gamma};
}

PolicyOptions policy_options(const EnvironmentOptions& options, const PolicyTrainingOptions& policy,
                             const grow::Population& population) {
  PolicyOptions made{
      .lanes = options.population.lanes,
      .space = {.num_slots = population.num_slots(), .num_blueprints = population.blueprints().size()},
      .enabled_slots = enabled_slots(options, population),
      .max_seeds = options.max_seeds,
      .episode_length = options.population.epochs,
      .parameter_budget = options.parameter_budget,
      .encoder_size = policy.encoder_size,
      .hidden_size = policy.hidden_size,
      .reward = reward_options(policy).mode,
      .seed = options.population.seed,
      .device = policy_device_of(options),
      .graphs = options.population.graphs ? Graphs::kOn : Graphs::kOff};
  made.ppo.gae = {.gamma = policy.gamma, .lambda = policy.gae_lambda};
  made.ppo.adam.learning_rate = policy.policy_rate;
  made.ppo.clip = policy.clip_ratio;
  made.ppo.entropy_first.fill(policy.entropy_first);
  made.ppo.entropy_last.fill(policy.entropy_last);
  made.ppo.entropy_first[index_of(policy::Head::kOp)] = policy.op_entropy_first;
  made.ppo.entropy_last[index_of(policy::Head::kOp)] = policy.op_entropy_last;
  made.ppo.target_kl = policy.target_kl;
  made.ppo.num_epochs = policy.update_epochs;
  made.ppo.num_minibatches = policy.minibatches;
  return made;
}

std::unique_ptr<Controller> rule_controller(const std::string& name, const EnvironmentOptions& options,
                                            const grow::Population& population) {
  PopulationOptions named = options.population;
  named.controller = name;
  return controller_for(
      named, population.blueprints(),
      {.enabled_slots = enabled_slots(options, population), .max_seeds = options.max_seeds});
}

}  // namespace espalier::train
