#include "espalier/train/population_job.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "espalier/core/device_memory.h"
#include "espalier/core/error.h"
#include "espalier/data/cache.h"
#include "espalier/lanes/conv_choice.h"
#include "espalier/train/deterministic_scope.h"
#include "espalier/train/epoch_lines.h"
#include "espalier/train/population_memory.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/run.h"

namespace espalier::train {
namespace {

nlohmann::ordered_json environment(const PopulationOptions& options, const data::ResidentDataset& dataset,
                                   PopulationTrainer& trainer) {
  const at::ScalarType compute = precision_type(options.precision, dataset.device);
  return {{"device", dataset.device.str()},
          {"precision", compute == at::kFloat  ? "fp32"
                        : compute == at::kHalf ? "fp16"
                                               : "bf16"},
          {"threads", at::get_num_threads()},
          {"deterministic", options.deterministic},
          {"graphs", trainer.step().graphs().is_capturing()},
          {"memory_format", dataset.format == MemoryFormat::kChannelsLast ? "channels_last" : "contiguous"},
          {"steps_per_epoch", trainer.steps_per_epoch()},
          {"parameters_per_lane", trainer.population().num_parameters(0)}};
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
  const DeviceName name = data::choose_device(options.device);
  const c10::Device device = data::torch_device(name);
  if (!device.is_cpu()) measure_cuda_context(device.index());  // before anything starts CUDA
  cap_device_memory(device, options.device_memory);
  const DeterministicScope deterministic(options.deterministic);
  repeat_convolutions(options.convolutions);

  const auto dataset =
      data::DatasetCache::instance().ensure(options.source, options.resident, name, events.progress);
  const std::vector<data::FieldSpec> specs = specs_of(dataset->train);
  const data::FieldSpec& field = specs[chosen_field(options, specs)];
  const int64_t on_device = dataset->residency == data::Residency::kDevice ? dataset->bytes() : 0;
  MemoryPlan plan = plan_population(options, on_device, field, dataset->num_classes());
  if (plan.budget_bytes > 0) plan.budget_bytes += on_device;  // it is there already
  check_fits(plan, "lower --lanes or --batch, or use --residency host");

  PopulationTrainer trainer(
      options,
      {.dataset = dataset, .device = name, .host = host_for(options, field, dataset->num_classes())});
  run.begin({environment(options, *dataset, trainer), dataset_facts(*dataset),
             [&] { return batch_pictures(trainer.step().batch()); }},
            [&](StateArchive& archive) { trainer.visit_state(archive); });
  trainer.at_every_batch([&] { run.at_batch(); });
  if (events.started) events.started(*dataset, plan, run.path());

  PopulationResult result{.run_dir = run.path()};
  const EpochLines lines(trainer.population());
  const auto train_epoch = [&] {
    const EpochRecord record = trainer.train_epoch(events.progress);
    run.set_score(record.mean_validated().accuracy);
    if (kind.lane_lines == LaneLines::kYes)
      for (const LaneRecord& lane : record.lanes) run.write_metrics(lines.of_lane(record, lane));
    run.write_metrics(lines.of_all(record));
    if (events.epoch_done) events.epoch_done(record);
    if (record.epoch == 1 && dataset->format == MemoryFormat::kContiguous) {
      const FormatComparison compared = compare_formats(options, plan, *dataset, name, trainer.step());
      run.write_metrics(comparison_line(compared));
      if (events.formats_compared) events.formats_compared(compared);
    }
    // After every epoch: what grows brings convolutions of its own.
    if (!device.is_cpu())
      run.write_file("convolutions.json", nlohmann::json(lanes::conv_choices()).dump(2) + "\n");
    if (trainer.num_retired() == options.lanes)
      fail(
          "in epoch {} the loss of every lane was not finite, after {} roll-backs at half the learning rate "
          "each; lower --learning-rate {}, or set --clip; results are in '{}'",
          record.epoch, PopulationTrainer::kMaxRollbacks, options.learning_rate, run.path().string());
  };
  run.guard([&] {
    while (trainer.epochs_done() < options.epochs) train_epoch();
    run.save_last();
    result.num_retired = trainer.num_retired();
    result.tested = trainer.test(events.progress);
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
