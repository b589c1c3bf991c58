#include "espalier/train/control/ppo_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "espalier/core/error.h"
#include "espalier/run/archive.h"
#include "espalier/train/control/learned_terms.h"
#include "espalier/train/control/policy_file.h"
#include "espalier/train/control/policy_header.h"
#include "espalier/train/population/setup.h"

namespace espalier::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

const PpoConfig& checked(const PpoConfig& options) {
  refuse_own_controller(options, "controller");
  return options;
}

PopulationConfig as_timed(const PpoConfig& options) {
  PopulationConfig population = options.population;
  if (!options.timing) population.time_every = 0;
  return population;
}

std::array<HeadDiagnostics, policy::kNumHeads> heads_in(std::span<const double> update) {
  std::array<HeadDiagnostics, policy::kNumHeads> heads;
  for (int head = 0; head < policy::kNumHeads; ++head)
    for (int which = 0; which < policy::kNumHeadDiagnostics; ++which) {
      const double value = update[static_cast<size_t>(
          policy::index_of(static_cast<policy::HeadDiagnostic>(which), static_cast<policy::Head>(head)))];
      if (!std::isnan(value)) heads[static_cast<size_t>(head)][static_cast<size_t>(which)] = value;
    }
  return heads;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

int64_t EpisodeRecord::num_lost() const {
  return last.num_retired();
}

double EpisodeRecord::mean_return() const {
  return mean(returns);
}

double EpisodeRecord::mean_accuracy() const {
  std::vector<double> accuracies;
  for (const LaneRecord& lane : last.lanes) accuracies.push_back(lane.validated.accuracy);
  return mean(accuracies);
}

EpisodeRecord play_episode(PopulationTrainer& environments, Controller& controller, int64_t round,
                           const EpisodeEvents& events, Episode episode) {
  const auto began = Clock::now();
  EpisodeRecord record{.round = round + 1};
  if (episode == Episode::kBegin) {
    environments.begin_episode(round);
    controller.begin_episode(round);
    environments.begin_with(controller.first_states(round));
  }
  while (environments.epochs_done() < environments.episode_length()) {
    // What is shown may throw (Ctrl-C): only here does nothing hang between an epoch and what it was worth.
    const int64_t step = environments.epochs_done() + 1;
    if (events.progress) events.progress(events.title, step, environments.episode_length());
    record.last = environments.train_epoch(controller);
    record.graphs += record.last.graphs;
    record.bytes_between_ranks += record.last.bytes_between_ranks;
    if (events.step_done) events.step_done(round + 1, record.last);
  }
  record.returns = environments.returns().returns();
  record.lengths = environments.returns().lengths();
  record.terms = environments.returns().terms();
  const auto host = static_cast<double>(environments.host_parameters());
  for (const LaneRecord& lane : record.last.lanes) {
    record.seeds_kept.push_back(std::ranges::count_if(
        lane.slots, [](const SlotReport& slot) { return slot.state.stage == SeedStage::kFossilized; }));
    record.added.push_back(static_cast<double>(lane.num_parameters) / host - 1);
  }
  record.times = environments.take_times();
  record.seconds = seconds_since(began);
  return record;
}

PpoTrainer::PpoTrainer(const PpoConfig& options, std::vector<ShardSetup> shards, ranks::World& world)
    : options_(checked(options)),
      environments_(as_timed(options), std::move(shards), policy_device_of(options), OnFailure::kRetire,
                    reading_config(options, options.policy.gamma), world) {
  if (options.controller == "ppo") {
    policy_ = std::make_shared<PolicyController>(
        policy_options(options, options.policy, space_of(environments_.population(0))));
    controller_ = policy_;
  } else {
    controller_ = rule_controller(options.controller, options, environments_.population(0));
  }
}

RoundRecord PpoTrainer::train_round(const Progress& progress, const StepDone& step_done) {
  const std::string title = fmt::format("round {}/{}", rounds_done_ + 1, options_.rounds);
  const Episode episode = is_under_way_ ? Episode::kGoOn : Episode::kBegin;
  is_under_way_ = true;
  RoundRecord record{.episode = play_episode(environments_, *controller_, rounds_done_,
                                             {title, progress, step_done}, episode)};
  if (policy_ && environments_.world().leads()) {
    const auto began = Clock::now();
    const double progress_of_run =
        options_.rounds > 1 ? static_cast<double>(rounds_done_) / static_cast<double>(options_.rounds - 1)
                            : 0;
    // The update's one copy.
    const at::Tensor values = policy_->update(std::min(progress_of_run, 1.0)).to(at::kCPU, at::kDouble);
    auto& diagnostics = record.diagnostics.emplace();
    const std::span all(values.const_data_ptr<double>(), static_cast<size_t>(policy::kNumUpdateValues));
    std::ranges::copy(all.first(diagnostics.size()), diagnostics.begin());
    record.heads = heads_in(all);
    record.update_seconds = seconds_since(began);
  }
  rounds_done_ += 1;
  is_under_way_ = false;
  return record;
}

void PpoTrainer::visit_state(run::StateArchive& archive) {
  archive.value("rounds_done", rounds_done_);
  archive.value("is_under_way", is_under_way_);
  if (archive.is_loading() && is_under_way_) controller_->begin_episode(rounds_done_);
  if (policy_) archive.part("policy", [&] { policy_->visit_state(archive); });
  if (!is_under_way_) return;  // all of them begin anew
  archive.part("environments", [&] { environments_.visit_state(archive); });
}

void PpoTrainer::save(const std::string& path, const std::string& config) const {
  if (!policy_)
    fail_usage("--save: only --controller ppo has something to save, got {}", options_.controller);
  Metadata metadata = metadata_of(terms_of(options_, environments_.population(0)));
  metadata["config"] = config;
  write_policy(path, policy_->state(), policy_->network().options(),
               with_rounds(std::move(metadata), rounds_done_));
}

void PpoTrainer::resume(const std::string& path) {
  if (!policy_)
    fail_usage("--resume: only --controller ppo has something to resume, got {}", options_.controller);
  const TensorFile file = read_tensors(path);
  const int64_t rounds = policy_rounds(file.metadata, path);  // before anything changes
  load_policy(file, policy_->state());
  rounds_done_ = rounds;
}

}  // namespace espalier::train
