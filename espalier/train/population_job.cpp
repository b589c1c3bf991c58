#include "espalier/train/population_job.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/lanes/conv_choice.h"
#include "espalier/train/deterministic_scope.h"
#include "espalier/train/environments.h"
#include "espalier/train/epoch_lines.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/run.h"

namespace espalier::train {
namespace {

const char* name_of(at::ScalarType compute) {
  return compute == at::kFloat ? "fp32" : compute == at::kHalf ? "fp16" : "bf16";
}

nlohmann::ordered_json environment(const PopulationOptions& options, std::span<const DeviceStart> starts,
                                   Environments& environments) {
  PopulationTrainer& first = environments.trainer(0);
  nlohmann::ordered_json devices;
  for (const DeviceStart& start : starts)
    devices.push_back({{"device", start.dataset->device.str()},
                       {"precision", name_of(precision_type(options.precision, start.dataset->device))}});
  const bool is_channels_last = starts.front().dataset->format == MemoryFormat::kChannelsLast;
  return {{"devices", devices},
          {"threads", at::get_num_threads()},
          {"deterministic", options.deterministic},
          {"graphs", first.step().graphs().is_capturing()},
          {"memory_format", is_channels_last ? "channels_last" : "contiguous"},
          {"steps_per_epoch", first.steps_per_epoch()},
          {"parameters_per_lane", environments.host_parameters()}};
}

nlohmann::ordered_json comparison_line(const FormatComparison& compared) {
  nlohmann::ordered_json line{
      {"kind", "memory_format"}, {"memory_format", "contiguous"}, {"time/step_ms", compared.step_ms}};
  if (compared.channels_last_ms) line["time/channels_last_step_ms"] = *compared.channels_last_ms;
  return line;
}

}  // namespace

LaneScore PopulationResult::mean() const {
  LaneScore mean;
  for (const LaneScore& score : tested) {
    mean.loss += score.loss / static_cast<double>(tested.size());
    mean.accuracy += score.accuracy / static_cast<double>(tested.size());
  }
  return mean;
}

int64_t PopulationResult::best_lane() const {
  return std::ranges::max_element(tested, {}, &LaneScore::accuracy) - tested.begin();
}

PopulationResult run_population_job(const PopulationOptions& options, const PopulationEvents& events,
                                    const JobKind& kind) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  Run run(options, kind.name, kind.config.is_null() ? to_json(options) : kind.config, events.run);
  const std::vector<DeviceName> devices = devices_of(options);
  for (const DeviceName& device : devices) claim_device(data::torch_device(device), options.device_memory);
  const DeterministicScope deterministic(options.deterministic);
  repeat_convolutions(options.convolutions);

  std::vector<Site> sites;
  for (const DeviceName& device : devices) sites.push_back(site_on(device, options, events.progress));
  const Growth growth = options.controller == "none" ? Growth::kNone : Growth::kSeeds;
  const std::vector<DeviceStart> starts = check_devices(options, sites, growth);
  const data::ResidentDataset& dataset = *starts.front().dataset;
  Environments environments(options, std::move(sites), dataset.device, OnFailure::kRollBack);
  const auto controller = controller_for(options, environments.population(0).blueprints());
  PopulationTrainer& first = environments.trainer(0);
  run.begin({environment(options, starts, environments), dataset_facts(dataset),
             [&] { return batch_pictures(first.step().batch()); }},
            [&](StateArchive& archive) { environments.visit_state(archive); });
  environments.at_every_batch([&] { run.at_batch(); });
  if (events.started) events.started(starts, run.path());

  PopulationResult result{.run_dir = run.path()};
  const EpochLines lines(environments.population(0));
  const auto train_epoch = [&] {
    const EpochRecord record = environments.train_epoch(*controller, events.progress);
    run.set_score(record.mean_validated().accuracy);
    if (kind.lane_lines == LaneLines::kYes)
      for (const LaneRecord& lane : record.lanes) run.write_metrics(lines.of_lane(record, lane));
    run.write_metrics(lines.of_all(record));
    if (events.epoch_done) events.epoch_done(record);
    if (record.epoch == 1 && dataset.format == MemoryFormat::kContiguous) {
      const FormatComparison compared = compare_formats(first, starts.front().plan);
      run.write_metrics(comparison_line(compared));
      if (events.formats_compared) events.formats_compared(compared);
    }
    // After every epoch: what grows brings convolutions of its own.
    if (!dataset.device.is_cpu())
      run.write_file("convolutions.json", nlohmann::json(lanes::conv_choices()).dump(2) + "\n");
    if (environments.num_retired() == options.lanes)
      fail(
          "in epoch {} the loss of every lane was not finite, after {} roll-backs at half the learning rate "
          "each; lower --learning-rate {}, or set --clip; results are in '{}'",
          record.epoch, PopulationTrainer::kMaxRollbacks, options.learning_rate, run.path().string());
  };
  run.guard([&] {
    while (environments.epochs_done() < options.epochs) train_epoch();
    run.save_last();
    result.num_retired = environments.num_retired();
    result.tested = environments.test(events.progress);
    result.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    if (kind.lane_lines == LaneLines::kYes)
      for (size_t lane = 0; lane < result.tested.size(); ++lane)
        run.write_metrics({{"kind", "lane_result"},
                           {"lane", lane},
                           {"test_loss", result.tested[lane].loss},
                           {"test_accuracy", result.tested[lane].accuracy}});
    run.write_metrics({{"kind", "result"},
                       {"test_loss", result.mean().loss},
                       {"test_accuracy", result.mean().accuracy},
                       {"seconds", result.seconds}});
  });
  run.finish();
  return result;
}

}  // namespace espalier::train
