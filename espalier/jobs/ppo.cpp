#include "espalier/jobs/ppo.h"

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/jobs/facts/batch_picture.h"
#include "espalier/jobs/facts/dataset.h"
#include "espalier/jobs/facts/output_estimate.h"
#include "espalier/jobs/facts/ppo_lines.h"
#include "espalier/jobs/facts/precision_name.h"
#include "espalier/jobs/scope.h"
#include "espalier/run/directory.h"
#include "espalier/run/files/metric_keys.h"
#include "espalier/tensor/device.h"
#include "espalier/train/control/policy_file.h"
#include "espalier/train/population/setup.h"

namespace espalier::jobs {
namespace {

nlohmann::ordered_json environment(const train::PpoConfig& options, train::PpoTrainer& trainer) {
  train::Shard& first = trainer.environments().shard(0);
  nlohmann::ordered_json devices;
  for (const DeviceName& device : train::devices_of(options.population))
    devices.push_back({{"device", device.text()},
                       {"precision", precision_name(train::precision_type(options.population.precision,
                                                                          torch_device(device)))}});
  return {{"devices", devices},
          {"ranks", trainer.environments().world().size()},
          {"threads", at::get_num_threads()},
          {"deterministic", options.population.deterministic},
          {"graphs", first.step().graphs().is_capturing()},
          {"validation_batch", first.validation_batch()},
          {"batches_per_step", first.batches_per_epoch()},
          {"parameters_per_lane", trainer.environments().host_parameters()}};
}

double mean_over(const std::vector<double>& values, size_t first, size_t count) {
  double sum = 0;
  for (size_t i = first; i < first + count; ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

// --resume names a policy to begin with, not a run to go on with.
bool begins_with_policy(const PpoJob& job) {
  return std::filesystem::is_regular_file(job.run.resume);
}

// What must not grow over a long run on GPUs.
void add_device_facts(nlohmann::ordered_json& line, train::PopulationTrainer& environments) {
  int64_t graphs = 0, bytes = 0;
  for (size_t p = 0; p < environments.num_shards(); ++p) {
    train::Shard& trainer = environments.shard(p);
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

void check_files(const PpoJob& job) {
  const std::string& controller = job.ppo.controller;
  if (controller == "ppo") return;
  if (!job.save.empty())
    fail_usage("--save {}: only --controller ppo learns, got --controller {}", job.save, controller);
  if (begins_with_policy(job))
    fail_usage("--resume {}: only --controller ppo learns, got --controller {}", job.run.resume, controller);
}

// A rank that began with another policy, or with none, would play another number of rounds.
void check_same_rounds(int64_t rounds_done, ranks::World& world) {
  const std::vector<std::string> all = world.gather(std::to_string(rounds_done));
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      fail_usage(
          "rank {} is not like rank 0: its policy has played {} rounds, and rank 0's {}; all ranks take the "
          "same --resume",
          rank, all[rank], all.front());
}

}  // namespace

train::JobNeeds needs_of(const train::PpoConfig& options, const train::GrowthSpace& space) {
  train::JobNeeds needs{.on_failure = train::OnFailure::kRetire};
  if (options.controller != "none") needs.growth = train::growth_limits(options, space);
  if (options.controller == "ppo")
    needs.policies.push_back(
        {train::policy_options(options, options.policy, space), train::PolicyUse::kLearns});
  return needs;
}

std::vector<train::ShardSetup> shards_of(const train::EnvironmentConfig& options, const Progress& progress) {
  std::vector<train::ShardSetup> shards;
  for (const DeviceName& device : train::devices_of(options.population))
    shards.push_back(train::shard_on(device, options.population, progress));
  return shards;
}

PpoResult run_ppo_job(const PpoJob& job, const PpoEvents& told, ranks::World& world) {
  train::PpoConfig options = job.ppo;
  options.population = train::placed(options.population, world);
  const PpoEvents events = world.leads() ? told : PpoEvents{};
  train::refuse_own_controller(options, "controller");
  check_files(job);
  run::RunConfig run_config = job.run;
  if (begins_with_policy(job)) run_config.resume.clear();
  run::Run run(run_config, "ppo", job.recorded, events.run, world);
  const JobScope scope(options.population, train::torch_devices_of(options));

  std::vector<train::ShardSetup> shards = shards_of(options, events.progress);
  train::check_devices(train::options_of_rank(options.population, world), shards,
                       needs_of(options, train::space_of(shards.front())));
  const std::shared_ptr<const data::ResidentDataset> dataset = shards.front().dataset;
  check_can_decide(*dataset, options.controller);
  train::PpoTrainer trainer(options, std::move(shards), world);
  std::vector<double> returns;  // one per round
  PpoResult result{.run_dir = run.path()};
  // Before the run begins: a file that does not fit leaves nothing behind.
  if (begins_with_policy(job) && !run.is_resumed()) {
    trainer.resume(job.run.resume);
    if (trainer.rounds_done() >= options.rounds)
      fail_usage("--resume {}: it has played {} rounds already; want more of them than --rounds {}",
                 job.run.resume, trainer.rounds_done(), options.rounds);
  }
  check_same_rounds(trainer.rounds_done(), world);
  run.begin(
      {environment(options, trainer), dataset_facts(*dataset),
       [&] { return batch_pictures(trainer.environments().shard(0).step().batch()); }, convolution_choices()},
      [&](run::StateArchive& archive) {
        trainer.visit_state(archive);
        archive.value("returns_of_rounds", returns);
        archive.value("last_accuracy", result.last_accuracy);
      });
  trainer.environments().at_every_batch([&] { run.at_batch(); });
  const PpoLines lines(trainer.environments(), options);
  if (events.run.noted)
    events.run.noted(
        output_text({.line_bytes = lane_line_bytes(lines.epochs(), trainer.environments().population(0),
                                                   options.max_seeds),
                     .lanes = options.population.lanes,
                     .steps = options.population.epochs,
                     .total = options.rounds,
                     .every = job.run.lane_lines,
                     .unit = "round"}));
  if (events.started) events.started(trainer, *dataset, run.path());

  const train::StepDone step_done = [&](int64_t round, const train::EpochRecord& epoch) {
    for (const train::LaneRecord& lane : epoch.lanes) run.write_metrics(lines.step_line(round, epoch, lane));
    if (events.step_done) events.step_done(round, epoch);
  };
  const auto play_round = [&] {
    const train::RoundRecord round = trainer.train_round(events.progress, step_done);
    returns.push_back(round.episode.mean_return());
    result.last_accuracy = round.episode.mean_accuracy();
    nlohmann::ordered_json line = lines.round_line(round);
    add_device_facts(line, trainer.environments());
    run.write_metrics(line);
    if (trainer.policy() != nullptr && world.leads()) {
      const std::string config =
          job.recorded.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
      trainer.save(run.path() / kPolicyFile, config);
      if (!job.save.empty()) trainer.save(job.save, config);
    }
    if (events.round_done) events.round_done(round);
    if (!dataset->device.is_cpu()) write_convolutions(run);
    run.end_epoch(round.episode.mean_return());
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
  result.seconds = run.seconds();
  run.write_metrics({{"kind", name_of(run::LineKind::kResult)},
                     {"rounds", result.rounds},
                     {"first_return", result.first_return},
                     {"last_return", result.last_return},
                     {"validation_accuracy", result.last_accuracy},
                     {"seconds", result.seconds}});
  run.finish();
  return result;
}

}  // namespace espalier::jobs
