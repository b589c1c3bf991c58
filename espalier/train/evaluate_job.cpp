#include "espalier/train/evaluate_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/list_text.h"
#include "espalier/train/deterministic_scope.h"
#include "espalier/train/policy_file.h"
#include "espalier/train/ppo_job.h"
#include "espalier/train/run.h"

namespace espalier::train {
namespace {

// Rounds of training count from 0: they never get here.
constexpr int64_t kFirstRound = int64_t{1} << 24;
constexpr std::string_view kPolicyPrefix = "ppo:";

// Before any data is read.
void check_names(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (!name.starts_with(kPolicyPrefix) && name != "none" && name != "random" && name != "heuristic")
      fail_usage("--controllers: want none, random, heuristic or ppo:FILE, got '{}'", name);
}

std::unique_ptr<Controller> policy_from(const std::string& path, const EvaluateOptions& options,
                                        const grow::Population& population) {
  const lanes::TensorFile file = lanes::read_tensors(path);
  const policy::NetworkOptions network = network_options_of(file);
  if (network.space.num_slots != population.num_slots())
    fail_usage("--controllers: the policy in '{}' is for hosts with {} slots, --host {} has {}", path,
               network.space.num_slots, options.population.host, population.num_slots());
  auto policy = std::make_unique<PolicyController>(policy_options(
      options, {.encoder_size = network.encoder_size, .hidden_size = network.hidden_size}, population));
  load_policy(file, policy->state());
  policy->set_playing(options.greedy ? policy::Playing::kLikeliest : policy::Playing::kSampling);
  return policy;
}

std::unique_ptr<Controller> controller_named(const std::string& name, const EvaluateOptions& options,
                                             const grow::Population& population) {
  if (name.starts_with(kPolicyPrefix))
    return policy_from(name.substr(kPolicyPrefix.size()), options, population);
  return rule_controller(name, options, population);
}

nlohmann::ordered_json line_of(const ControllerScores& scores, const ControllerScores& first) {
  const auto put = [](nlohmann::ordered_json& line, const std::string& name, const Interval& interval) {
    line[name] = interval.mean;
    line[name + "_95"] = interval.half_width;
  };
  nlohmann::ordered_json line{
      {"kind", "evaluated"}, {"controller", scores.name}, {"episodes", scores.accuracy.size()}};
  put(line, "test_accuracy", scores.interval(scores.accuracy));
  put(line, "test_accuracy_over_first", scores.gain_over(first));
  put(line, "return", scores.interval(scores.returns));
  put(line, "added_parameters", scores.interval(scores.added));
  put(line, "seeds_kept", scores.interval(scores.kept));
  line["lost"] = scores.num_lost;
  line["intervals_over"] = scores.num_episodes > 1 ? "episodes" : "networks";
  return line;
}

}  // namespace

Interval ControllerScores::interval(const std::vector<double>& values) const {
  return interval_over_groups(values, values.size() / static_cast<size_t>(num_episodes));
}

Interval ControllerScores::gain_over(const ControllerScores& other) const {
  std::vector<double> differences;
  for (size_t i = 0; i < accuracy.size(); ++i) differences.push_back(accuracy[i] - other.accuracy[i]);
  return interval(differences);
}

std::vector<ControllerScores> evaluate(const EvaluateOptions& options, std::vector<Site> sites,
                                       const EvaluateEvents& events) {
  check_names(split_list(options.controllers));
  Environments environments(options.population, std::move(sites), policy_device_of(options),
                            OnFailure::kRetire);
  EpisodeReturns returns(environments, reward_options({}));
  // All of them first: a file that is damaged costs no episode.
  std::vector<std::pair<std::string, std::unique_ptr<Controller>>> controllers;
  for (const std::string& name : split_list(options.controllers))
    controllers.emplace_back(name, controller_named(name, options, environments.population(0)));

  std::vector<ControllerScores> all;
  for (const auto& [name, controller] : controllers) {
    ControllerScores scores{.name = name, .num_episodes = options.episodes};
    for (int64_t episode = 0; episode < options.episodes; ++episode) {
      const std::string title = fmt::format("{}, episode {}/{}", name, episode + 1, options.episodes);
      const EpisodeRecord record = play_episode(environments, *controller, returns, kFirstRound + episode,
                                                {.title = title, .progress = events.progress});
      for (const LaneScore& tested : environments.test()) scores.accuracy.push_back(tested.accuracy);
      scores.added.insert(scores.added.end(), record.added.begin(), record.added.end());
      scores.kept.insert(scores.kept.end(), record.seeds_kept.begin(), record.seeds_kept.end());
      scores.returns.insert(scores.returns.end(), record.returns.begin(), record.returns.end());
      scores.num_lost += record.num_lost();
      if (events.episode_done) events.episode_done(name, record);
    }
    all.push_back(std::move(scores));
  }
  return all;
}

EvaluateResult run_evaluate_job(const EvaluateOptions& options, const EvaluateEvents& events) {
  const auto began = std::chrono::steady_clock::now();
  const DeterministicScope deterministic(options.population.deterministic);
  check_names(split_list(options.controllers));
  Run run(options.population, "evaluate", to_json(options));
  std::vector<Site> sites = sites_of(options, events.progress);
  check_devices(options.population, sites, options.controllers == "none" ? Growth::kNone : Growth::kSeeds);
  run.begin({}, {});  // a comparison is not resumed
  EvaluateResult result{.scores = evaluate(options, std::move(sites), events)};
  for (const ControllerScores& scores : result.scores) {
    for (size_t i = 0; i < scores.accuracy.size(); ++i)
      run.write_metrics({{"kind", "evaluated_lane"},
                         {"controller", scores.name},
                         {"episode", static_cast<int64_t>(i) / options.population.lanes + 1},
                         {"lane", static_cast<int64_t>(i) % options.population.lanes},
                         {"test_accuracy", scores.accuracy[i]},
                         {"return", scores.returns[i]},
                         {"added_parameters", scores.added[i]},
                         {"seeds_kept", scores.kept[i]}});
    run.write_metrics(line_of(scores, result.scores.front()));
  }
  run.finish();
  result.run_dir = run.path();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

}  // namespace espalier::train
