#include "espalier/train/ppo_job.h"

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/lanes/conv_choice.h"
#include "espalier/train/deterministic_scope.h"
#include "espalier/train/policy_file.h"
#include "espalier/train/ppo_lines.h"
#include "espalier/train/run.h"

namespace espalier::train {
namespace {

constexpr const char* kPolicyFile = "policy.safetensors";

nlohmann::ordered_json environment(const PpoJobOptions& options, PpoTrainer& trainer) {
  PopulationTrainer& first = trainer.environments().trainer(0);
  nlohmann::ordered_json devices;
  for (const DeviceName& device : devices_of(options.population))
    devices.push_back(
        {{"device", device.text()}, {"precision", population_options(options, device).precision}});
  return {{"devices", devices},
          {"threads", at::get_num_threads()},
          {"deterministic", options.population.deterministic},
          {"graphs", first.step().graphs().is_capturing()},
          {"batches_per_step", first.steps_per_epoch()},
          {"parameters_per_lane", trainer.environments().host_parameters()}};
}

double mean_over(const std::vector<double>& values, size_t first, size_t count) {
  double sum = 0;
  for (size_t i = first; i < first + count; ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

// --resume names a policy to begin with, not a run to go on with.
bool begins_with_policy(const PpoJobOptions& options) {
  return std::filesystem::is_regular_file(options.population.resume);
}

// What must not grow over a long run on GPUs.
void add_device_facts(nlohmann::ordered_json& line, Environments& environments) {
  int64_t graphs = 0, bytes = 0;
  for (size_t p = 0; p < environments.num_populations(); ++p) {
    PopulationTrainer& trainer = environments.trainer(p);
    if (!trainer.step().device().is_cuda()) continue;
    graphs += trainer.step().graphs().num_kept() + trainer.validation().graphs().num_kept();
    bytes += c10::getDeviceAllocator(c10::kCUDA)
                 ->getDeviceStats(trainer.step().device().index())
                 .reserved_bytes[0]
                 .current;
  }
  if (bytes == 0) return;
  line["time/graphs_kept"] = graphs;
  line["time/device_mib"] = static_cast<double>(bytes) / (1 << 20);
}

void check_files(const PpoJobOptions& options) {
  if (options.controller == "ppo") return;
  if (!options.save.empty())
    fail_usage("--save {}: only --controller ppo learns, got --controller {}", options.save,
               options.controller);
  if (begins_with_policy(options))
    fail_usage("--resume {}: only --controller ppo learns, got --controller {}", options.population.resume,
               options.controller);
}

}  // namespace

std::vector<Site> sites_of(const EnvironmentOptions& options, const Progress& progress) {
  std::vector<Site> sites;
  for (const DeviceName& device : devices_of(options.population))
    sites.push_back(site_on(device, population_options(options, device), progress));
  return sites;
}

PpoResult run_ppo_job(const PpoJobOptions& options, const PpoEvents& events) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  check_files(options);
  RunOptions run_options = options.population;
  if (begins_with_policy(options)) run_options.resume.clear();
  Run run(run_options, "ppo", to_json(options), events.run);
  for (const DeviceName& device : devices_of(options.population))
    claim_device(data::torch_device(device), options.population.device_memory);
  const DeterministicScope deterministic(options.population.deterministic);
  repeat_convolutions(options.population.convolutions);

  std::vector<Site> sites = sites_of(options, events.progress);
  check_devices(options.population, sites, options.controller == "none" ? Growth::kNone : Growth::kSeeds);
  const std::shared_ptr<const data::ResidentDataset> dataset = sites.front().setup.dataset;
  PpoTrainer trainer(options, std::move(sites));
  std::vector<double> returns;  // of rounds
  PpoResult result{.run_dir = run.path()};
  run.begin({environment(options, trainer), dataset_facts(*dataset),
             [&] { return batch_pictures(trainer.environments().trainer(0).step().batch()); }},
            [&](StateArchive& archive) {
              trainer.visit_state(archive);
              archive.value("returns_of_rounds", returns);
              archive.value("last_accuracy", result.last_accuracy);
            });
  if (begins_with_policy(options) && !run.is_resumed()) {
    trainer.resume(options.population.resume);
    if (trainer.rounds_done() >= options.rounds)
      fail_usage("--resume {}: it has played {} rounds already; want more of them than --rounds {}",
                 options.population.resume, trainer.rounds_done(), options.rounds);
  }
  trainer.environments().at_every_batch([&] { run.at_batch(); });
  if (events.started) events.started(trainer, *dataset, run.path());

  const PpoLines lines(trainer.environments().population(0), options);
  const StepDone step_done = [&](int64_t round, const EpochRecord& epoch,
                                 const std::vector<RewardTerms>& rewards) {
    for (size_t i = 0; i < epoch.lanes.size(); ++i)
      run.write_metrics(lines.of_step(round, epoch, epoch.lanes[i], rewards[i]));
    if (events.step_done) events.step_done(round, epoch, rewards);
  };
  const auto play_round = [&] {
    const RoundRecord round = trainer.train_round(events.progress, step_done);
    returns.push_back(round.episode.mean_return());
    result.last_accuracy = round.episode.mean_accuracy();
    run.set_score(round.episode.mean_return());
    nlohmann::ordered_json line = lines.of_round(round);
    add_device_facts(line, trainer.environments());
    run.write_metrics(line);
    if (trainer.policy() != nullptr) {
      trainer.save(run.path() / kPolicyFile);
      if (!options.save.empty()) trainer.save(options.save);
    }
    if (events.round_done) events.round_done(round);
    if (!dataset->device.is_cpu())
      run.write_file("convolutions.json", nlohmann::json(lanes::conv_choices()).dump(2) + "\n");
  };
  run.guard([&] {
    while (trainer.rounds_done() < options.rounds) play_round();
    run.save_last();
  });
  const size_t tenth = std::max<size_t>(1, returns.size() / 10);
  result.rounds = std::ssize(returns);
  result.first_return = mean_over(returns, 0, tenth);
  result.last_return = mean_over(returns, returns.size() - tenth, tenth);
  if (trainer.policy() != nullptr) result.policy = run.path() / kPolicyFile;
  result.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  run.write_metrics({{"kind", "result"},
                     {"rounds", result.rounds},
                     {"first_return", result.first_return},
                     {"last_return", result.last_return},
                     {"validation_accuracy", result.last_accuracy},
                     {"seconds", result.seconds}});
  run.finish();
  return result;
}

}  // namespace espalier::train
