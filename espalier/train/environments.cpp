#include "espalier/train/environments.h"

#include <fmt/format.h>

#include "espalier/train/episode_seed.h"
#include "espalier/train/joint_epoch.h"
#include "espalier/train/population_memory.h"
#include "espalier/train/population_setup.h"

namespace espalier::train {

Environments::Environments(const EnvironmentOptions& options, const Setup& setup)
    : options_(options.population), acting_(policy_device_of(options), options.population.time_every) {
  const std::vector<DeviceName> devices = devices_of(options);
  const auto count = std::ssize(devices);
  std::vector<std::vector<int64_t>> envs(devices.size());
  std::vector<std::string> env_devices;
  for (int64_t env = 0; env < num_lanes(); ++env) {
    envs[static_cast<size_t>(env % count)].push_back(env);
    env_devices.push_back(devices[static_cast<size_t>(env % count)].text());
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    PopulationOptions part = population_options(options, devices[d]);
    part.lanes = std::ssize(envs[d]);
    part.controller = "none";  // one decides for all of them
    TrainerSetup own = setup(devices[d]);
    own.envs = envs[d];
    own.env_devices = env_devices;
    own.on_failure = OnFailure::kRetire;
    populations_.push_back(std::make_unique<PopulationTrainer>(part, std::move(own)));
  }
  buffer_ = std::make_unique<EpochBuffer>(std::move(envs), num_slots(), policy_device_of(options));
}

MemoryPlan plan_environments(const EnvironmentOptions& options, const DeviceName& device,
                             const TrainerSetup& setup, Growth growth) {
  const data::ResidentDataset& data = *setup.dataset;
  const std::vector<DeviceName> devices = devices_of(options);
  PopulationOptions here = population_options(options, device);
  here.controller = growth == Growth::kSeeds ? "random" : "none";
  here.lanes = 0;  // environment e lives on device e mod D, and a device may be named twice
  for (int64_t env = 0; env < options.population.lanes; ++env)
    here.lanes += devices[static_cast<size_t>(env % std::ssize(devices))].text() == device.text();
  const std::vector<data::FieldSpec> specs = specs_of(data.train);
  const int64_t on_device = data.residency == data::Residency::kDevice ? data.bytes() : 0;
  MemoryPlan plan = plan_population(here, on_device, specs[chosen_field(here, specs)], data.num_classes());
  if (plan.budget_bytes > 0) plan.budget_bytes += on_device;  // it is there already
  return plan;
}

void check_fits(const EnvironmentOptions& options, const Environments::Setup& setup, Growth growth) {
  for (const DeviceName& device : devices_of(options))
    check_fits(plan_environments(options, device, setup(device), growth),
               fmt::format("lower --envs or --batch-per-env, add to --devices {}, or use --residency host",
                           options.devices));
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

void Environments::visit_state(StateArchive& archive) {
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
