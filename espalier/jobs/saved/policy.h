// Policies that `train ppo` saved, as controllers of other jobs: ppo:FILE.
//
// Kept true: a policy acts where what it learned holds (PolicyTerms), or is refused by the flag that differs,
// with both values and what to do.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "espalier/policy/network.h"
#include "espalier/tensor/file.h"
#include "espalier/train/control/policy_controller.h"
#include "espalier/train/control/policy_terms.h"
#include "espalier/train/control/ppo_config.h"
#include "espalier/train/population/shard_setup.h"

namespace espalier::jobs {

// The file of ppo:FILE, or of ppo:RUN, a run of train ppo; none for another name. flag: how messages call
// what names the controller, "--controllers".
std::optional<std::string> policy_file_in(std::string_view controller, std::string_view flag);

class SavedPolicy {
 public:
  explicit SavedPolicy(const std::string& path);

  // Environments of a job that has no flags for slots, most seeds, budget and how often gradient norms are
  // shown: as they were when it learned.
  train::EnvironmentConfig environments(const train::PopulationConfig& population) const;

  // What it takes on its device.
  train::JobNeeds::Policy needs(const train::EnvironmentConfig& options,
                                const train::GrowthSpace& space) const;

  // Ready to act; refuses environments that are not as it learned in. length_flag: how the job calls the
  // length of an episode.
  std::unique_ptr<train::PolicyController> controller(const train::EnvironmentConfig& options,
                                                      const grow::NetworkStack& population,
                                                      std::string_view length_flag,
                                                      policy::ActingMode mode) const;

 private:
  void check(const train::EnvironmentConfig& options, const grow::NetworkStack& population,
             std::string_view length_flag) const;
  train::PolicyConfig sizes() const;

  TensorFile file_;
  policy::NetworkOptions network_;
  train::PolicyTerms terms_;
};

}  // namespace espalier::jobs
