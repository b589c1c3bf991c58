#include "espalier/jobs/population.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/jobs/facts/batch_picture.h"
#include "espalier/jobs/facts/dataset.h"
#include "espalier/jobs/facts/epoch_lines.h"
#include "espalier/jobs/facts/lane_results.h"
#include "espalier/jobs/facts/network.h"
#include "espalier/jobs/facts/output_estimate.h"
#include "espalier/jobs/facts/precision_name.h"
#include "espalier/jobs/saved/named_controller.h"
#include "espalier/jobs/saved/networks.h"
#include "espalier/jobs/scope.h"
#include "espalier/run/directory.h"
#include "espalier/run/files/metric_keys.h"
#include "espalier/train/control/recorded.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/trainer.h"
#include "espalier/train/step/data_parallel.h"

namespace espalier::jobs {
namespace {

constexpr std::string_view kControllerFlag = kPopulationFlags.controller;

nlohmann::ordered_json environment(const train::PopulationConfig& options,
                                   std::span<const train::DeviceStart> starts,
                                   train::PopulationTrainer& environments, const ranks::World& world) {
  train::Shard& first = environments.shard(0);
  nlohmann::ordered_json devices;
  for (const train::DeviceStart& start : starts)
    devices.push_back(
        {{"device", start.dataset->device.str()},
         {"precision", precision_name(train::precision_type(options.precision, start.dataset->device))}});
  const bool is_channels_last = starts.front().dataset->format == MemoryFormat::kChannelsLast;
  return {{"devices", devices},
          {"ranks", world.size()},
          {"threads", at::get_num_threads()},
          {"deterministic", options.deterministic},
          {"graphs", first.step().graphs().is_capturing()},
          {"memory_format", is_channels_last ? "channels_last" : "contiguous"},
          {"validation_batch", first.validation_batch()},
          {"steps_per_epoch", first.batches_per_epoch()},
          {"parameters_per_lane", environments.host_parameters()}};
}

nlohmann::ordered_json comparison_line(const train::FormatComparison& compared) {
  nlohmann::ordered_json line{{"kind", name_of(run::LineKind::kMemoryFormat)},
                              {"memory_format", "contiguous"},
                              {"time/step_ms", compared.step_ms}};
  if (compared.channels_last_ms) line["time/channels_last_step_ms"] = *compared.channels_last_ms;
  return line;
}

// The networks that --from names, one for each lane; refused where they do not fit the job.
std::vector<grow::GrownNetwork> first_networks(const std::string& from,
                                               const train::PopulationConfig& options,
                                               const data::ResidentDataset& dataset) {
  std::vector<grow::GrownNetwork> networks = saved_networks(from);
  const grow::NetworkDescription now = described_network(options, dataset, "");
  for (const auto& [network, tensors, name] : networks) {
    if (network.host != now.host)
      fail_usage("--from {}: its networks grew on --host {}, got --host {}: give --host {}", from,
                 network.host, now.host, network.host);
    if (network.image_text() != now.image_text())
      fail_usage("--from {}: its networks take images of {} (channels, height, width), and --data {} has {}",
                 from, network.image_text(), options.source.data, now.image_text());
    if (network.num_classes() != now.num_classes())
      fail_usage("--from {}: its networks know {} classes, and --data {} has {}", from, network.num_classes(),
                 options.source.data, now.num_classes());
  }
  if (networks.size() == 1) networks.resize(static_cast<size_t>(options.lanes), networks.front());
  if (std::ssize(networks) != options.lanes)
    fail_usage(
        "--from {}: there are {} networks, got --lanes {}: give --lanes {}, or one network for all lanes, by "
        "`espalier export`",
        from, networks.size(), options.lanes, networks.size());
  return networks;
}

bool any_seeds(const std::vector<grow::GrownNetwork>& networks) {
  return std::ranges::any_of(
      networks, [](const grow::GrownNetwork& network) { return !network.description.seeds.empty(); });
}

void check_decider(const PopulationJob& job) {
  const std::string& name = job.population.controller;
  check_only_controller(name, kControllerFlag);
  const auto recorded = recorded_in(name, kControllerFlag);
  if (recorded && recorded->kind == RecordedName::Kind::kStatic && !job.from.empty())
    fail_usage("--from {}: the networks of {} {} begin with seeds of their own; leave one of the two out",
               job.from, kControllerFlag, name);
}

// Every rank would plant the same seeds, but gradients of hosts alone are added up.
void check_does_not_grow(const PopulationJob& job, const ranks::World& batch_world) {
  if (batch_world.is_alone() || (job.population.controller == "none" && job.from.empty())) return;
  fail_usage(
      "{}: {} ranks share every batch of a network that does not grow; start one process, or let ranks share "
      "lanes out with train population",
      job.from.empty() ? fmt::format("{} {}", kControllerFlag, job.population.controller)
                       : fmt::format("--from {}", job.from),
      batch_world.size());
}

// Who decides. The state of a policy or a replay is part of the run's.
struct Decider {
  std::unique_ptr<train::Controller> controller;
  train::PolicyController* policy;  // none, where another decides
  train::ReplayController* replay;  // the same

  Decider(const train::PopulationConfig& options, const grow::NetworkStack& population) {
    const NamedController named(options.controller, kPopulationFlags);
    controller = named.make(named.environments(options), population);
    policy = dynamic_cast<train::PolicyController*>(controller.get());
    replay = dynamic_cast<train::ReplayController*>(controller.get());
    if (policy != nullptr) policy->begin_episode(0);
  }

  void visit_state(run::StateArchive& archive) const {
    if (policy != nullptr) archive.part("policy", [&] { policy->visit_state(archive); });
    if (replay != nullptr) archive.part("replay", [&] { replay->visit_state(archive); });
  }

  int64_t num_illegal() const {
    const std::vector<int64_t> illegal = controller->num_illegal();
    return std::accumulate(illegal.begin(), illegal.end(), int64_t{0});
  }
};

}  // namespace

bool has_seeds(const std::string& from) {
  return any_seeds(saved_networks(from));
}

train::JobNeeds needs_of(const train::PopulationConfig& options, const train::GrowthSpace& space) {
  const NamedController named(options.controller, kPopulationFlags);
  return named.needs(named.environments(options), space);
}

train::LaneScore PopulationResult::mean() const {
  train::LaneScore mean;
  for (const train::LaneScore& score : tested) {
    mean.loss += score.loss / static_cast<double>(tested.size());
    mean.accuracy += score.accuracy / static_cast<double>(tested.size());
  }
  return mean;
}

int64_t PopulationResult::best_lane() const {
  return std::ranges::max_element(tested, {}, &train::LaneScore::accuracy) - tested.begin();
}

PopulationResult run_population_job(const PopulationJob& job, const PopulationEvents& told,
                                    ranks::World& world) {
  const bool shares_lanes = job.ranks_share == RanksShare::kLanes;
  ranks::World& lane_world = shares_lanes ? world : ranks::World::alone();
  ranks::World& batch_world = shares_lanes ? ranks::World::alone() : world;
  const PopulationEvents events = world.leads() ? told : PopulationEvents{};
  check_decider(job);
  check_does_not_grow(job, batch_world);
  const train::PopulationConfig options = NamedController(job.population.controller, kPopulationFlags)
                                              .environments(train::placed(job.population, world))
                                              .population;
  train::PopulationConfig own = options;
  own.batch = train::part_of_batch(options.batch, batch_world);
  run::Run run(job.run, job.name, job.recorded, events.run, world);
  const std::vector<DeviceName> devices = train::devices_of(options);
  const JobScope scope(options, train::torch_devices_of(options));

  std::vector<train::ShardSetup> shards;
  for (const DeviceName& device : devices) {
    shards.push_back(train::shard_on(device, own, events.progress));
    shards.back().batch_world = &batch_world;
  }
  std::vector<grow::GrownNetwork> first_ones;
  if (!job.from.empty() && !run.is_resumed())
    first_ones = first_networks(job.from, options, *shards.front().dataset);
  train::JobNeeds needs = needs_of(options, train::space_of(shards.front()));
  // A run that goes on may have lost the networks that it began with.
  const bool has_grown = any_seeds(first_ones) || (!job.from.empty() && run.is_resumed());
  if (has_grown && !needs.growth) needs.growth.emplace();
  const std::vector<train::DeviceStart> starts =
      train::check_devices(train::options_of_rank(own, lane_world), shards, needs);
  const data::ResidentDataset& dataset = *starts.front().dataset;
  check_can_decide(dataset, options.controller);
  const bool is_validated = dataset.validation.num_samples() > 0;
  train::PopulationTrainer environments(
      options, std::move(shards), dataset.device, train::OnFailure::kRollBack,
      NamedController(options.controller, kPopulationFlags).reading(options), lane_world);
  const Decider decider(options, environments.population(0));
  if (!first_ones.empty()) environments.begin_as(first_ones);
  if (!run.is_resumed()) environments.begin_with(decider.controller->first_states(0));
  train::Shard& first = environments.shard(0);
  nlohmann::ordered_json facts = environment(options, starts, environments, world);
  add_network_facts(facts, described_network(options, dataset, run.path().string()),
                    environments.population(0));
  run.begin({std::move(facts), dataset_facts(dataset), [&] { return batch_pictures(first.step().batch()); },
             convolution_choices()},
            [&](run::StateArchive& archive) {
              environments.visit_state(archive);
              decider.visit_state(archive);
            });
  environments.at_every_batch([&] { run.at_batch(); });
  const EpochLines lines(environments.population(0));
  if (job.lane_lines == LaneLines::kYes && events.run.noted)
    events.run.noted(output_text({.line_bytes = lane_line_bytes(lines, environments.population(0), 1),
                                  .lanes = options.lanes,
                                  .total = options.epochs,
                                  .every = job.run.lane_lines}));
  if (events.started) events.started(starts, run.path());

  PopulationResult result{.run_dir = run.path()};
  const auto rate_at_end_of = [&](int64_t epoch) {
    return options.learning_rate * first.step().schedule().at(epoch * first.batches_per_epoch() - 1);
  };
  const auto train_epoch = [&] {
    const train::EpochRecord record = environments.train_epoch(*decider.controller, events.progress);
    const auto write = [&](nlohmann::ordered_json line) {
      if (!is_validated) clear_validation(line);
      run.write_metrics(line);
    };
    if (job.lane_lines == LaneLines::kYes)
      for (const train::LaneRecord& lane : record.lanes) write(lines.lane_line(record, lane));
    write(lines.epoch_line(record, rate_at_end_of(record.epoch)));
    if (events.epoch_done) events.epoch_done(record);
    if (record.epoch == 1 && dataset.format == MemoryFormat::kContiguous) {
      const train::FormatComparison compared = train::compare_formats(first, starts.front().plan);
      run.write_metrics(comparison_line(compared));
      if (events.formats_compared) events.formats_compared(compared);
    }
    // After every epoch: what grows brings convolutions of its own.
    if (!dataset.device.is_cpu()) write_convolutions(run);
    if (environments.num_retired() == options.lanes)
      fail(
          "in epoch {} the loss of every lane was not finite, though the learning rate of each was halved {} "
          "times; lower --learning-rate {}, or set a smaller --clip; results are in '{}'",
          record.epoch, train::Shard::kMaxHalvings, options.learning_rate, run.path().string());
    run.end_epoch(is_validated ? record.mean_validated().accuracy : std::numeric_limits<double>::quiet_NaN());
  };
  run.guard([&] {
    while (environments.epochs_done() < options.epochs) train_epoch();
    run.save_last();
    result.num_retired = environments.num_retired();
    result.tested = environments.test(events.progress);
    result.seconds = run.seconds();
    if (job.lane_lines == LaneLines::kYes)
      for (const nlohmann::ordered_json& line : lane_result_lines(environments, result.tested))
        run.write_metrics(line);
    nlohmann::ordered_json line{{"kind", name_of(run::LineKind::kResult)},
                                {"test_loss", result.mean().loss},
                                {"test_accuracy", result.mean().accuracy},
                                {"seconds", result.seconds}};
    if (decider.replay != nullptr) line["illegal_actions"] = decider.num_illegal();
    run.write_metrics(line);
  });
  run.finish();
  return result;
}

}  // namespace espalier::jobs
