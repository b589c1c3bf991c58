#include "espalier/cli/flags/jobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/text/list.h"
#include "espalier/run/location.h"

namespace espalier::cli {
namespace {

namespace fs = std::filesystem;

// runs/latest leads to the job's own run as soon as that begins: what a job reads is named by where its links
// lead now. Within the working directory by a relative path, as it would be typed.
std::string without_links(const fs::path& given) {
  fs::path so_far;
  const bool has_link = std::any_of(given.begin(), given.end(), [&](const fs::path& part) {
    std::error_code ignored;
    return fs::is_symlink(so_far /= part, ignored);
  });
  std::error_code code;
  fs::path real = has_link ? fs::canonical(given, code) : given;
  if (!has_link || code) return given.string();  // what is not there is refused where it is read
  if (const fs::path near = real.lexically_relative(fs::current_path());
      given.is_relative() && !near.empty() && *near.begin() != "..")
    real = near;
  return real.string();
}

// "ppo:runs/latest" as "ppo:runs/ppo-1".
std::string controller_without_links(const std::string& controller) {
  const size_t colon = controller.find(':');
  if (colon == controller.npos) return controller;
  return controller.substr(0, colon + 1) + without_links(controller.substr(colon + 1));
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  std::error_code none;
  const fs::path within = fs::weakly_canonical(path, none).lexically_relative(fs::canonical(folder, none));
  return !none && !within.empty() && *within.begin() != "..";
}

// What --from says when links are followed, `latest` too. Where they lead to the run that is begun itself,
// the same command began it before: it means what it meant then, which config.json says.
std::string networks_without_links(const std::string& from, const run::RunConfig& run) {
  if (from.empty()) return from;
  const std::string real =
      without_links(from == "latest" ? fs::path(run::kRunsFolder) / "latest" : fs::path(from));
  if (run.run_dir.empty() || real == from || !lies_in(real, run.run_dir)) return real;
  std::ifstream file(fs::path(run.run_dir) / "config.json");
  const auto before = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  return before.is_object() && before.contains("from") && before["from"].is_string()
             ? before["from"].get<std::string>()
             : real;
}

}  // namespace

train::PopulationConfig HostFlags::one_lane() const {
  train::PopulationConfig one = population;
  if (device) one.devices = {*device};
  return one;
}

jobs::PopulationJob HostFlags::job() const {
  return {.population = one_lane(),
          .run = run,
          .recorded = to_json(*this),
          .name = "host",
          .lane_lines = jobs::LaneLines::kNo,
          .ranks_share = jobs::RanksShare::kBatches};
}

jobs::PopulationJob PopulationFlags::job() const {
  PopulationFlags named = *this;
  named.population.controller = controller_without_links(population.controller);
  named.from = networks_without_links(from, run);
  return {.population = named.population, .run = run, .recorded = to_json(named), .from = named.from};
}

std::string_view controller_help() {
  static const std::string help = fmt::format(
      "who decides, after every epoch, what grows: {}, ppo:FILE for a policy that train ppo saved, or "
      "static:FILE and replay:FILE for what one grew and did in a run of evaluate",
      fmt::join(train::controllers().names(), ", "));
  return help;
}

std::string_view controllers_help() {
  static const std::string help = fmt::format(
      "which controllers to compare: {}, ppo:FILE for a policy that train ppo saved, or ppo:RUN for that of "
      "a run; "
      "static: "
      "what the first policy grew, from the first step on; replay: what it did, in other networks "
      "(static:FILE, replay:FILE: what a recording says)",
      fmt::join(train::controllers().names(), ", "));
  return help;
}

jobs::LinetJob LinetFlags::job() const {
  LinetFlags filled = *this;
  filled.linet = train::checked_options(linet);  // what the rules fill in is recorded
  return {.linet = filled.linet, .run = run, .recorded = to_json(filled)};
}

std::vector<std::string_view> deciders() {
  std::vector<std::string_view> names{"ppo"};
  for (const std::string_view name : train::controllers().names()) names.push_back(name);
  return names;
}

jobs::PpoJob PpoFlags::job() const {
  return {.ppo = ppo, .run = run, .save = save, .recorded = to_json(*this)};
}

namespace {

struct RewardFlags {
  policy::RewardConfig reward;

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_reward(v, reward);
  }
};

}  // namespace

jobs::RewardAbJob PpoFlags::reward_ab_job() const {
  const std::vector<std::string> files = split_list(reward_ab);
  if (files.size() != 2 || files[0].empty() || files[1].empty())
    fail_usage("--reward-ab {}: want two JSON files of reward options with a comma between them", reward_ab);
  if (!save.empty())
    fail_usage("--save {}: there are two policies (--reward-ab), in the run's folders a and b; leave it out",
               save);
  jobs::RewardAbConfig config{.both = ppo, .rewards = {}, .run = run};
  for (size_t which = 0; which < files.size(); ++which) {
    RewardFlags own{ppo.reward};  // what the file does not say is as the flags say
    const OptionList options = list_options(own);
    read_config_file(options, files[which]);
    validate(options, files[which]);
    config.rewards[which] = own.reward;
  }
  jobs::RewardAbJob made = jobs::reward_ab_job(config);
  for (jobs::PpoJob& each : made.learning) {
    PpoFlags own = *this;
    own.ppo = each.ppo;
    own.run = each.run;
    own.reward_ab.clear();
    each.recorded = to_json(own);
  }
  EvaluateFlags comparison;
  comparison.evaluate = made.comparison.evaluate;
  comparison.run = made.comparison.run;
  // By config.json alone it goes on: --config-json must not throw away what it describes.
  comparison.run.restart = run::Restart::kAuto;
  made.comparison.recorded = to_json(comparison);
  return made;
}

jobs::EvaluateJob EvaluateFlags::job() const {
  EvaluateFlags named = *this;
  for (std::string& controller : named.evaluate.controllers)
    controller = controller_without_links(controller);
  return {.evaluate = named.evaluate, .run = run, .recorded = to_json(named)};
}

}  // namespace espalier::cli
