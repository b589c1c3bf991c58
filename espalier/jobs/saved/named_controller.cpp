#include "espalier/jobs/saved/named_controller.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "espalier/core/error.h"

namespace espalier::jobs {

void check_controller(const std::string& name, std::string_view flag) {
  const std::vector<std::string_view> names = train::controllers().names();
  if (!policy_file_in(name, flag) && !recorded_in(name, flag) && std::ranges::count(names, name) == 0)
    fail_usage("{}: want {}, static:FILE, replay:FILE or ppo:FILE, got '{}'", flag, fmt::join(names, ", "),
               name);
}

void check_only_controller(const std::string& name, std::string_view flag) {
  check_controller(name, flag);
  const auto recorded = recorded_in(name, flag);
  if (recorded && recorded->file.empty())
    fail_usage("{} {}: want the recording too: {}:FILE, or {}:RUN with a run of evaluate", flag, name, name,
               name);
}

std::string controller_file(const std::string& name, std::string_view flag) {
  if (const auto recorded = recorded_in(name, flag)) return recorded->file;
  return policy_file_in(name, flag).value_or("");
}

NamedController::NamedController(const std::string& name, const ControllerFlags& flags)
    : name_(name), flags_(flags), recorded_(recorded_in(name, flags.controller)) {
  check_controller(name, flags.controller);
  if (const auto file = policy_file_in(name, flags.controller)) policy_.emplace(*file);
}

train::EnvironmentConfig NamedController::environments(const train::PopulationConfig& population) const {
  if (policy_) return policy_->environments(population);
  train::EnvironmentConfig options;
  options.population = population;
  options.max_seeds = std::numeric_limits<int64_t>::max();
  return options;
}

train::ReadingConfig NamedController::reading(const train::PopulationConfig& population) const {
  return train::reading_config(environments(population));
}

train::JobNeeds NamedController::needs(const train::EnvironmentConfig& options,
                                       const train::GrowthSpace& space) const {
  train::JobNeeds needs;
  if (name_ != "none") needs.growth = train::growth_limits(options, space);
  if (policy_) needs.policies.push_back(policy_->needs(options, space));
  return needs;
}

std::unique_ptr<train::Controller> NamedController::make(const train::EnvironmentConfig& options,
                                                         const grow::NetworkStack& population,
                                                         policy::ActingMode mode,
                                                         const train::Recording* played) const {
  if (policy_) return policy_->controller(options, population, flags_.length, mode);
  if (!recorded_) return train::rule_controller(name_, options, population);
  if (recorded_->file.empty() && played == nullptr) return nullptr;
  return recorded_controller(recorded_->kind,
                             recorded_->file.empty() ? *played : train::read_recording(recorded_->file),
                             options.population, population,
                             {.name = fmt::format("{} {}", flags_.controller, name_),
                              .length_flag = std::string(flags_.length),
                              .limits = train::growth_limits(options, train::space_of(population))});
}

}  // namespace espalier::jobs
