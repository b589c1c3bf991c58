#include "espalier/train/ppo_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "espalier/core/error.h"
#include "espalier/train/policy_file.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/state_archive.h"

namespace espalier::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRoundsKey = "rounds";  // in a policy's file: those it learned from

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

PopulationOptions as_timed(const PpoJobOptions& options) {
  PopulationOptions population = options.population;
  if (!options.timing) population.time_every = 0;
  return population;
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

EpisodeRecord play_episode(Environments& environments, Controller& controller, EpisodeReturns& returns,
                           int64_t round, const EpisodeEvents& events, Episode episode) {
  const auto began = Clock::now();
  EpisodeRecord record{.round = round + 1};
  if (episode == Episode::kBegin) {
    environments.begin_episode(round);
    controller.begin_episode(round);
    returns.begin();
  }
  while (environments.epochs_done() < environments.episode_length()) {
    // What is shown may throw (Ctrl-C): only here does nothing hang between an epoch and what it was worth.
    const int64_t step = environments.epochs_done() + 1;
    if (events.progress) events.progress(events.title, step, environments.episode_length());
    record.last = environments.train_epoch(controller);
    record.num_captures += record.last.num_captures;
    record.capture_seconds += record.last.capture_seconds;
    const bool is_last = step == environments.episode_length();
    returns.add(record.last, is_last ? EpisodeReturns::Place::kLast : EpisodeReturns::Place::kWithin);
    if (events.step_done) events.step_done(round + 1, record.last, returns.last_terms());
  }
  record.returns = returns.returns();
  record.lengths = returns.lengths();
  record.terms = returns.terms();
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

PpoTrainer::PpoTrainer(const PpoJobOptions& options, std::vector<Site> sites)
    : options_(options),
      environments_(as_timed(options), std::move(sites), policy_device_of(options), OnFailure::kRetire),
      returns_(environments_, reward_options(options.policy)) {
  if (options.controller == "ppo") {
    policy_ = std::make_shared<PolicyController>(
        policy_options(options, options.policy, environments_.population(0)));
    controller_ = policy_;
  } else {
    controller_ = rule_controller(options.controller, options, environments_.population(0));
  }
}

RoundRecord PpoTrainer::train_round(const Progress& progress, const StepDone& step_done) {
  const std::string title = fmt::format("round {}/{}", rounds_done_ + 1, options_.rounds);
  const Episode episode = is_under_way_ ? Episode::kGoOn : Episode::kBegin;
  is_under_way_ = true;
  RoundRecord record{.episode = play_episode(environments_, *controller_, returns_, rounds_done_,
                                             {title, progress, step_done}, episode)};
  if (policy_) {
    const auto began = Clock::now();
    const double progress_of_run =
        options_.rounds > 1 ? static_cast<double>(rounds_done_) / static_cast<double>(options_.rounds - 1)
                            : 0;
    // The update's one copy.
    const at::Tensor values = policy_->update(std::min(progress_of_run, 1.0)).to(at::kCPU, at::kDouble);
    auto& diagnostics = record.diagnostics.emplace();
    std::copy_n(values.const_data_ptr<double>(), diagnostics.size(), diagnostics.begin());
    record.update_seconds = seconds_since(began);
  }
  rounds_done_ += 1;
  is_under_way_ = false;
  return record;
}

void PpoTrainer::visit_state(StateArchive& archive) {
  archive.value("rounds_done", rounds_done_);
  archive.value("is_under_way", is_under_way_);
  if (archive.is_loading() && is_under_way_) controller_->begin_episode(rounds_done_);
  if (policy_) archive.part("policy", [&] { policy_->visit_state(archive); });
  if (!is_under_way_) return;  // all of them begin anew
  archive.part("environments", [&] { environments_.visit_state(archive); });
  archive.part("returns", [&] { returns_.visit_state(archive); });
}

void PpoTrainer::save(const std::string& path) const {
  if (!policy_)
    fail_usage("--save: only --controller ppo has something to save, got {}", options_.controller);
  write_policy(path, policy_->state(), policy_->network().options(),
               {{kRoundsKey, std::to_string(rounds_done_)}, {"config", config_text(options_)}});
}

void PpoTrainer::resume(const std::string& path) {
  if (!policy_)
    fail_usage("--resume: only --controller ppo has something to resume, got {}", options_.controller);
  const lanes::TensorFile file = lanes::read_tensors(path);
  const auto rounds = file.metadata.find(kRoundsKey);
  if (rounds == file.metadata.end())
    fail("'{}': its metadata has no '{}': this is no policy", path, kRoundsKey);
  load_policy(file, policy_->state());
  rounds_done_ = std::stoll(rounds->second);
}

}  // namespace espalier::train
