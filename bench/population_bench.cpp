#include "bench/population_bench.h"

#include <fmt/format.h>

#include "bench/first_step.h"
#include "bench/host_floor.h"
#include "bench/random_images.h"
#include "bench/scratch_folder.h"
#include "espalier/data/resident.h"
#include "espalier/lanes/conv/choice.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard.h"

namespace espalier::bench {
namespace {

struct Shape {
  int64_t lanes, batch, base;
  std::string text() const { return fmt::format("{} x {}, base {}", lanes, batch, base); }
};

train::PopulationConfig config_of(const Shape& shape, const PopulationBenchOptions& options) {
  train::PopulationConfig training;
  training.lanes = shape.lanes;
  training.batch = shape.batch;
  training.precision = options.precision;
  training.graphs = options.graphs;
  return training;
}

grow::HostMaker host_of(const Shape& shape) {
  return grow::cnn_host({.n_blocks = 3, .base_channels = shape.base});
}

void time_shape(const Shape& shape, const PopulationBenchOptions& options,
                const std::shared_ptr<const data::ResidentDataset>& dataset, const DeviceName& device,
                const MachineRates& rates, Report& report) {
  const train::PopulationConfig training = config_of(shape, options);
  train::Shard trainer({.options = training, .dataset = dataset, .device = device, .host = host_of(shape)});
  train::TrainStep& step = trainer.step();
  int64_t epoch = 0, done = 0;
  step.begin_epoch(epoch);
  const auto one_step = [&] {
    if (done == trainer.batches_per_epoch()) {
      step.begin_epoch(++epoch % training.epochs);
      done = 0;
    }
    step.run();
    ++done;
  };
  const TimingPlan plan =
      options.bench.smoke ? TimingPlan{1, 1, 1} : TimingPlan{.warm_up = 20, .samples = 20, .calls = 10};
  const bool on_gpu = !dataset->device.is_cpu();
  const at::ScalarType type = train::precision_type(options.precision, dataset->device);
  report.add({.name = "espalier",
              .shapes = shape.text(),
              .timing = time_calls(dataset->device, plan, one_step),
              .floor_us = step_floor_us({shape.lanes, shape.batch, shape.base},
                                        static_cast<int64_t>(c10::elementSize(type)), rates),
              .note = fmt::format("gather included, {}, {}", type_name(type),
                                  on_gpu && options.graphs ? "captured" : "eager")});
}

}  // namespace

void measure_population(const PopulationBenchOptions& options, const MachineRates& rates, Report& report,
                        const Progress& progress) {
  const DeviceName name = choose_device(options.device);
  const c10::Device device = torch_device(name);
  lanes::set_conv_choosing(options.deterministic ? lanes::ConvChoosing::kFixed
                                                 : lanes::ConvChoosing::kMeasure);
  const auto dataset = data::make_resident(random_images(), {.validation = 512}, device, progress);
  std::vector<Shape> shapes{{128, 64, 8}, {8, 512, 32}};
  if (options.lanes > 0) shapes = {{options.lanes, options.batch, options.base}};
  if (options.bench.smoke && options.lanes == 0) shapes = {{2, 8, 8}};
  for (const Shape& shape : shapes) {
    time_shape(shape, options, dataset, name, rates, report);
    if (!options.peers) continue;
    // The only 16-bit type that peers know is bf16.
    const bool is_full = train::precision_type(options.precision, device) == at::kFloat;
    const ScratchFolder scratch("", "population");
    const std::string first_step = (scratch.path() / "first_step.safetensors").string();
    {
      train::Shard shard({.options = first_step_config(config_of(shape, options)),
                          .dataset = dataset,
                          .device = name,
                          .host = host_of(shape)});
      write_first_step(first_step, shard);
    }
    report.add_peers({"population_torch.py", "population_jax.py"},
                     {"--device", name.text(), "--lanes", std::to_string(shape.lanes), "--batch",
                      std::to_string(shape.batch), "--base", std::to_string(shape.base), "--dtype",
                      is_full ? "fp32" : "bf16", "--first-step", first_step});
  }
}

std::string run_population_bench(const PopulationBenchOptions& options, const std::string& commit,
                                 const Progress& progress) {
  const c10::Device device = torch_device(choose_device(options.device));
  Report report("population", device, commit, options.bench);
  const MachineRates rates =
      measure_rates(device, train::precision_type(options.precision, device), options.bench.smoke);
  measure_population(options, rates, report, progress);
  std::string choices;
  for (const auto& [key, choice] : lanes::conv_choices()) choices += fmt::format("  {}: {}\n", key, choice);
  if (!choices.empty()) choices = "convolutions, as they were chosen:\n" + choices;
  return report.text() + choices;
}

}  // namespace espalier::bench
