// Who decides, by name: one of train::controllers(), a policy that train ppo saved (ppo:FILE, policy.h), or
// what follows a recording (static:FILE and replay:FILE, recorded_controller.h).
//
// Kept true: every job that takes such a name asks here who that is, what it takes and how epochs are read
// for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "espalier/jobs/saved/policy.h"
#include "espalier/jobs/saved/recorded_controller.h"
#include "espalier/train/control/ppo_config.h"
#include "espalier/train/population/shard_setup.h"

namespace espalier::jobs {

// The flags of a job, as messages name them.
struct ControllerFlags {
  std::string_view controller;  // what names who decides: "--controllers"
  std::string_view length;      // the length of an episode: "--episode-length"
};

// Those of `train population` and of what looks at it.
inline constexpr ControllerFlags kPopulationFlags{.controller = "--controller", .length = "--epochs"};

// Refuses an unknown controller name. flag: the one that names the controller.
void check_controller(const std::string& name, std::string_view flag);
// The same for a job in which no policy plays first: static and replay must name a recording.
void check_only_controller(const std::string& name, std::string_view flag);

// The file of a policy or of a recording that the name contains; empty where it contains none.
std::string controller_file(const std::string& name, std::string_view flag);

class NamedController {
 public:
  // Refuses an unknown name; reads the file of a policy.
  NamedController(const std::string& name, const ControllerFlags& flags);

  // The environments of a job without flags for slots, most seeds, budget and how often gradient norms are
  // shown: as they were when the policy learned; under any other controller seeds may grow everywhere.
  train::EnvironmentConfig environments(const train::PopulationConfig& population) const;
  // How such a job reads epochs: as the policy that decides saw them when it learned.
  train::ReadingConfig reading(const train::PopulationConfig& population) const;

  // What a job takes under it, beside bare hosts.
  train::JobNeeds needs(const train::EnvironmentConfig& options, const train::GrowthSpace& space) const;

  // Ready to decide; refuses environments that a policy or a recording does not fit. played: what static or
  // replay alone follow; without it they cannot be made yet, and nothing comes back.
  std::unique_ptr<train::Controller> make(const train::EnvironmentConfig& options,
                                          const grow::NetworkStack& population,
                                          policy::ActingMode mode = policy::ActingMode::kSampling,
                                          const train::Recording* played = nullptr) const;

 private:
  std::string name_;
  ControllerFlags flags_;
  std::optional<SavedPolicy> policy_;
  std::optional<RecordedName> recorded_;
};

}  // namespace espalier::jobs
