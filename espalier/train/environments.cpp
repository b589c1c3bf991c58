#include "espalier/train/environments.h"

#include <fmt/format.h>

#include <utility>

#include "espalier/train/episode_seed.h"
#include "espalier/train/joint_epoch.h"
#include "espalier/train/state_archive.h"

namespace espalier::train {

Environments::Environments(const PopulationOptions& options, std::vector<Site> sites, at::Device acting,
                           OnFailure on_failure)
    : options_(options), acting_(acting, options.time_every) {
  std::vector<std::vector<int64_t>> envs(sites.size());
  std::vector<std::string> env_devices;
  for (int64_t env = 0; env < num_lanes(); ++env) {
    const auto site = static_cast<size_t>(env % std::ssize(sites));
    envs[site].push_back(env);
    env_devices.push_back(sites[site].setup.device.text());
  }
  for (size_t s = 0; s < sites.size(); ++s) {
    PopulationOptions& part = sites[s].options;
    part.lanes = std::ssize(envs[s]);
    part.controller = "none";  // one decides for all of them
    part.time_every = options.time_every;
    TrainerSetup& setup = sites[s].setup;
    setup.envs = envs[s];
    setup.env_devices = env_devices;
    setup.on_failure = on_failure;
    populations_.push_back(std::make_unique<PopulationTrainer>(part, std::move(setup)));
  }
  buffer_ = std::make_unique<EpochBuffer>(std::move(envs), num_slots(), acting);
}

void Environments::begin_episode(int64_t round) {
  for (const auto& population : populations_)
    population->begin_episode(episode_seed(options_.seed, round), round * options_.epochs);
}

EpochRecord Environments::train_epoch(Controller& controller, const Progress& progress) {
  std::vector<PopulationTrainer*> all;
  for (const auto& population : populations_) all.push_back(population.get());
  return train_together(all, *buffer_, controller, progress, &acting_);
}

PartTimes Environments::take_times() {
  PartTimes times = acting_.take();
  for (const auto& population : populations_) times += population->timing().take();
  return times;
}

void Environments::at_every_batch(const std::function<void()>& call) {
  for (const auto& population : populations_) population->at_every_batch(call);
}

int64_t Environments::num_retired() const {
  int64_t retired = 0;
  for (const auto& population : populations_) retired += population->num_retired();
  return retired;
}

void Environments::visit_state(StateArchive& archive) {
  if (populations_.size() == 1) return populations_.front()->visit_state(archive);
  for (size_t p = 0; p < populations_.size(); ++p)
    archive.part(fmt::format("population{}", p), [&] { populations_[p]->visit_state(archive); });
}

std::vector<LaneScore> Environments::test(const Progress& progress) {
  std::vector<LaneScore> scores(static_cast<size_t>(num_lanes()));
  for (const auto& population : populations_) {
    const std::vector<LaneScore> own = population->test(progress);
    for (size_t lane = 0; lane < own.size(); ++lane)
      scores[static_cast<size_t>(population->env_of(static_cast<int64_t>(lane)))] = own[lane];
  }
  return scores;
}

}  // namespace espalier::train
