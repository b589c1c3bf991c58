// The options of episodes and of the policy that decides in them: the environments, the policy, and how it
// learns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/machine/device_name.h"
#include "espalier/grow/network_stack.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/control/policy_controller.h"
#include "espalier/train/population/config.h"
#include "espalier/train/population/shard.h"

namespace espalier::train {

// What a policy is and how it learns.
struct PolicyConfig {
  int64_t encoder_size = 512;
  int64_t hidden_size = 512;
  double gamma = 0.995;
  double gae_lambda = 0.95;
  double policy_rate = 3e-4;
  double clip_ratio = 0.2;
  // Weights of the op's entropy and of every other head's, in the first round and in the last; in between
  // along a line.
  double op_entropy_first = 0.1;
  double op_entropy_last = 0.005;
  double entropy_first = 0.01;
  double entropy_last = 0.001;
  double target_kl = 0.02;
  int64_t update_epochs = 4;
  int64_t minibatches = 1;
};

// What lives through episodes, and where.
struct EnvironmentConfig {
  // lanes: the environments; epochs: steps of an episode; controller: stays none, since who decides is named
  // beside the environments.
  PopulationConfig population;
  std::optional<DeviceName> policy_device;  // where controllers act; none: the first of the devices
  std::vector<std::string> slots;           // where seeds may be planted; empty: everywhere
  int64_t max_seeds = 3;                    // that a network may hold at once
  // Added parameters, as a share of the host's, that the policy is shown as the whole budget.
  double parameter_budget = 1;
  policy::RewardConfig reward;  // what decisions are worth, whoever makes them

  EnvironmentConfig() {
    population.epochs = 25;
    population.plan = data::PlanKind::kSplit;
  }
};

struct PpoConfig : EnvironmentConfig {
  int64_t rounds = 100;            // episodes of all environments, an update after each
  std::string controller = "ppo";  // or one of controllers(), to compare with: only ppo learns
  bool timing = true;              // population.time_every counts
  PolicyConfig policy;

  PpoConfig() { population.time_every = 1; }
};

// Refuses a controller named in the population's own options, which would never be consulted. member: what
// names the controller instead.
void refuse_own_controller(const EnvironmentConfig& options, std::string_view member);

// Where controllers act, on this machine or not.
at::Device policy_device_of(const EnvironmentConfig& options);

// All devices of a job: those where networks live, and the one where controllers act. A device that this
// machine does not have is refused.
std::vector<c10::Device> torch_devices_of(const EnvironmentConfig& options);

// Where seeds may grow, and how many kinds there are: asked of a host of one lane.
struct GrowthSpace {
  std::vector<grow::SlotSpec> slots;  // by action index
  int32_t num_blueprints = 0;
};
GrowthSpace space_of(const grow::HostMaker& host, const grow::HostFrame& frame,
                     const grow::BlueprintRegistry& blueprints);
GrowthSpace space_of(const ShardSetup& setup);
GrowthSpace space_of(const grow::NetworkStack& population);

// The slots and the most seeds; a slot that the host does not have is refused with the list.
GrowthLimits growth_limits(const EnvironmentConfig& options, const GrowthSpace& space);

// The policy's options: its sizes follow from the space.
PolicyOptions policy_options(const EnvironmentConfig& options, const PolicyConfig& policy,
                             const GrowthSpace& space);
// How epochs are read. gamma: discount of the rewards' potential; the policy's.
ReadingConfig reading_config(const EnvironmentConfig& options, double gamma = PolicyConfig{}.gamma);

// none, random or heuristic, within the same slots and number of seeds as the policy.
std::unique_ptr<Controller> rule_controller(const std::string& name, const EnvironmentConfig& options,
                                            const grow::NetworkStack& population);

}  // namespace espalier::train
