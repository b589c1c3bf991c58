#include "espalier/train/control/ppo_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/data/resident.h"
#include "espalier/grow/host/registry.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard_setup.h"

namespace espalier::train {
namespace {

// Which slots --slots names; a name that is none is refused with the list.
std::vector<bool> enabled_slots(const EnvironmentConfig& options, const GrowthSpace& space) {
  std::vector<std::string> names;
  for (const grow::SlotSpec& slot : space.slots) names.push_back(slot.name);
  std::vector<bool> enabled(names.size(), options.slots.empty());
  if (options.slots.empty()) return enabled;
  for (const std::string& name : options.slots) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      fail_usage("--slots: '{}' is none of this host's: {}", name, fmt::join(names, ", "));
    enabled[static_cast<size_t>(found - names.begin())] = true;
  }
  return enabled;
}

}  // namespace

void refuse_own_controller(const EnvironmentConfig& options, std::string_view member) {
  const std::string& own = options.population.controller;
  if (own != "none")
    fail_usage(
        "population.controller '{}': a job of episodes asks the one that `{}` names; name it there, and "
        "leave this none",
        own, member);
}

at::Device policy_device_of(const EnvironmentConfig& options) {
  return planned_device(options.policy_device ? *options.policy_device
                                              : devices_of(options.population).front());
}

std::vector<c10::Device> torch_devices_of(const EnvironmentConfig& options) {
  std::vector<c10::Device> devices = torch_devices_of(options.population);
  if (options.policy_device) devices.push_back(torch_device(*options.policy_device));
  return devices;
}

ReadingConfig reading_config(const EnvironmentConfig& options, double gamma) {
  return {.parameter_budget = options.parameter_budget, .reward = options.reward, .gamma = gamma};
}

GrowthSpace space_of(const grow::HostMaker& host, const grow::HostFrame& frame,
                     const grow::BlueprintRegistry& blueprints) {
  grow::HostFrame one = frame;
  one.lanes = 1;
  one.lane_ids = {};
  return {.slots = host({.frame = one, .options = at::TensorOptions(at::kFloat)})->slots(),
          .num_blueprints = blueprints.size()};
}

GrowthSpace space_of(const ShardSetup& setup) {
  const PopulationConfig& options = setup.options;
  const std::vector<data::FieldSpec> fields = specs_of(setup.dataset->train);
  return space_of(setup.host ? setup.host : grow::hosts().at(options.host).make,
                  frame_for(options, fields[chosen_field(options, fields)], setup.dataset->num_classes()),
                  setup.blueprints);
}

GrowthSpace space_of(const grow::NetworkStack& population) {
  return {.slots = population.slots(), .num_blueprints = population.blueprints().size()};
}

GrowthLimits growth_limits(const EnvironmentConfig& options, const GrowthSpace& space) {
  return {.enabled_slots = enabled_slots(options, space), .max_seeds = options.max_seeds};
}

PolicyOptions policy_options(const EnvironmentConfig& options, const PolicyConfig& policy,
                             const GrowthSpace& space) {
  PolicyOptions made{.lanes = options.population.lanes,
                     .space = {.num_slots = std::ssize(space.slots), .num_blueprints = space.num_blueprints},
                     .enabled_slots = enabled_slots(options, space),
                     .max_seeds = options.max_seeds,
                     .episode_length = options.population.epochs,
                     .gates = options.population.gates,
                     .encoder_size = policy.encoder_size,
                     .hidden_size = policy.hidden_size,
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

std::unique_ptr<Controller> rule_controller(const std::string& name, const EnvironmentConfig& options,
                                            const grow::NetworkStack& population) {
  PopulationConfig named = options.population;
  named.controller = name;
  return controller_for(named, population.blueprints(), growth_limits(options, space_of(population)));
}

}  // namespace espalier::train
