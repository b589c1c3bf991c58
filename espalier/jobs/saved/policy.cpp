#include "espalier/jobs/saved/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"
#include "espalier/jobs/ppo.h"
#include "espalier/run/earlier.h"
#include "espalier/train/control/learned_terms.h"
#include "espalier/train/control/policy_file.h"

namespace espalier::jobs {
namespace {

constexpr std::string_view kPrefix = "ppo:";

std::string text_of(const std::vector<std::string>& names) {
  return on_one_line(fmt::format("{}", fmt::join(names, ",")));
}
std::string text_of(int64_t number) {
  return std::to_string(number);
}
std::string text_of(double number) {
  return fmt::format("{}", number);
}
std::string text_of(const std::string& text) {
  return text;
}

}  // namespace

std::optional<std::string> policy_file_in(std::string_view controller, std::string_view flag) {
  namespace fs = std::filesystem;
  if (!controller.starts_with(kPrefix)) return std::nullopt;
  const std::string given(controller.substr(kPrefix.size()));
  if (!fs::is_directory(given)) return given;
  const std::string job = run::job_of(given);
  if (!job.empty() && job != "ppo")
    fail_usage("{} {}: {}, which has no policy: want the file of one, or a run of train ppo", flag,
               controller, run::kind_text(job));
  return (fs::path(given) / kPolicyFile).string();
}

SavedPolicy::SavedPolicy(const std::string& path)
    : file_(read_tensors(path)),
      network_(train::network_options_of(file_)),
      terms_(train::policy_terms(file_.metadata, path)) {}

train::PolicyConfig SavedPolicy::sizes() const {
  return {.encoder_size = network_.encoder_size, .hidden_size = network_.hidden_size};
}

train::EnvironmentConfig SavedPolicy::environments(const train::PopulationConfig& population) const {
  train::EnvironmentConfig options;
  options.population = population;
  if (terms_.planted_slots) options.slots = *terms_.planted_slots;
  if (terms_.max_seeds) options.max_seeds = *terms_.max_seeds;
  if (terms_.parameter_budget) options.parameter_budget = *terms_.parameter_budget;
  if (terms_.telemetry_every) options.population.telemetry_every = *terms_.telemetry_every;
  return options;
}

train::JobNeeds::Policy SavedPolicy::needs(const train::EnvironmentConfig& options,
                                           const train::GrowthSpace& space) const {
  return {train::policy_options(options, sizes(), space), train::PolicyUse::kActs};
}

void SavedPolicy::check(const train::EnvironmentConfig& options, const grow::NetworkStack& population,
                        std::string_view length_flag) const {
  const std::string& host = options.population.host;
  const train::PolicyTerms now = train::terms_of(options, population);
  if (terms_.host_slots && *terms_.host_slots != *now.host_slots)
    fail_usage(
        "--host {}: its slots are {}, and the policy in '{}' learned on {}: take a host with those slots",
        host, text_of(*now.host_slots), file_.path, text_of(*terms_.host_slots));
  if (network_.space.num_slots != population.num_slots())
    fail_usage(
        "--host {}: has {} slots, and the policy in '{}' is for hosts with {}: take another host, or another "
        "policy",
        host, population.num_slots(), file_.path, network_.space.num_slots);
  if (terms_.blueprints && *terms_.blueprints != *now.blueprints)
    fail_usage("the policy in '{}' plants {}, and this program has {}: use the program that it learned in",
               file_.path, text_of(*terms_.blueprints), text_of(*now.blueprints));
  if (network_.space.num_blueprints != population.blueprints().size())
    fail_usage(
        "the policy in '{}' knows {} blueprints, and this program has {}: use the program that it learned in",
        file_.path, network_.space.num_blueprints, population.blueprints().size());
  const auto compare = [&](std::string_view flag, const auto& learned, const auto& given) {
    if (!learned || !given || *learned == *given) return;
    fail_usage("{} {}: the policy in '{}' learned with {}; give {} {}, or another policy", flag,
               text_of(*given), file_.path, text_of(*learned), flag, text_of(*learned));
  };
  compare("--slots", terms_.planted_slots, now.planted_slots);
  compare("--max-seeds", terms_.max_seeds, now.max_seeds);
  compare("--parameter-budget", terms_.parameter_budget, now.parameter_budget);
  compare("--gates", terms_.gates, now.gates);
  compare("--gate-training-steps", terms_.gate_training_steps, now.gate_training_steps);
  compare("--gate-least-norm", terms_.gate_least_norm, now.gate_least_norm);
  compare("--gate-largest-norm", terms_.gate_largest_norm, now.gate_largest_norm);
  compare("--gate-improvement", terms_.gate_improvement, now.gate_improvement);
  compare("--gate-gradient-ratio", terms_.gate_gradient_ratio, now.gate_gradient_ratio);
  compare("--gate-contribution", terms_.gate_contribution, now.gate_contribution);
  compare("--embargo", terms_.embargo, now.embargo);
  compare(length_flag, terms_.episode_length, now.episode_length);
  compare("--batches-per-step", terms_.batches_per_step, now.batches_per_step);
  compare("--validate-every", terms_.validate_every, now.validate_every);
  compare("--validation-parts", terms_.validation_parts, now.validation_parts);
  compare("--telemetry-every", terms_.telemetry_every, now.telemetry_every);
}

std::unique_ptr<train::PolicyController> SavedPolicy::controller(const train::EnvironmentConfig& options,
                                                                 const grow::NetworkStack& population,
                                                                 std::string_view length_flag,
                                                                 policy::ActingMode mode) const {
  check(options, population, length_flag);
  auto policy = std::make_unique<train::PolicyController>(
      train::policy_options(options, sizes(), train::space_of(population)));
  train::load_policy(file_, policy->state());
  policy->set_mode(mode);
  return policy;
}

}  // namespace espalier::jobs
