#include "bench/population_bench.h"

#include <fmt/format.h>

#include "bench/random_images.h"
#include "espalier/data/resident.h"
#include "espalier/lanes/conv/choice.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/shard.h"

namespace espalier::bench {
namespace {

constexpr double kBytesPerUs = 4.3e6;  // what one H200 was measured to copy: 4.3 TB/s, read and written

struct Shape {
  int64_t lanes, batch, base;
  std::string text() const { return fmt::format("{} x {}, base {}", lanes, batch, base); }
};

// What has to be read and written once where every activation is kept: the convolution's output y and the
// pooled p of each block, forward x y | y | y p, backward y p | y p y | y x, and y x again but for the first.
double floor_us(const Shape& shape, int64_t bytes_a_value) {
  int64_t size = 32, channels = 3, filters = shape.base;
  double bytes = 0;
  for (int block = 0; block < 3; ++block, size /= 2, channels = filters, filters *= 2) {
    const auto pixels = static_cast<double>(shape.lanes * shape.batch * size * size * bytes_a_value);
    const double x = pixels * static_cast<double>(channels), y = pixels * static_cast<double>(filters);
    bytes += 7 * y + 3 * y / 4 + 2 * x + (block > 0 ? y + x : 0);
  }
  return bytes / kBytesPerUs;
}

// What peers compute in: what we do, where they can (of 16 bits they know bf16).
const char* peer_type(train::Precision precision, c10::Device device) {
  const bool is_full =
      precision == train::Precision::kFp32 || (precision == train::Precision::kAuto && device.is_cpu());
  return is_full ? "fp32" : "bf16";
}

void time_shape(const Shape& shape, const PopulationBenchOptions& options,
                const std::shared_ptr<const data::ResidentDataset>& dataset, const DeviceName& device,
                Report& report) {
  train::PopulationConfig training;
  training.lanes = shape.lanes;
  training.batch = shape.batch;
  training.precision = options.precision;
  training.graphs = options.graphs;
  const grow::HostMaker host = grow::cnn_host({.n_blocks = 3, .base_channels = shape.base});
  train::Shard trainer({.options = training, .dataset = dataset, .device = device, .host = host});
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
  report.add({.name = "espalier",
              .shapes = shape.text(),
              .timing = time_calls(dataset->device, plan, one_step),
              .floor_us = on_gpu ? floor_us(shape, 2) : 0,
              .note = fmt::format("gather included, {}", on_gpu && options.graphs ? "captured" : "eager")});
}

}  // namespace

std::string run_population_bench(const PopulationBenchOptions& options, const std::string& commit,
                                 const Progress& progress) {
  const DeviceName name = choose_device(options.device);
  const c10::Device device = torch_device(name);
  lanes::set_conv_choosing(options.deterministic ? lanes::ConvChoosing::kFixed
                                                 : lanes::ConvChoosing::kMeasure);
  const auto dataset = data::make_resident(random_images(), {.validation = 512}, device, progress);
  std::vector<Shape> shapes{{128, 64, 8}, {8, 512, 32}};
  if (options.lanes > 0) shapes = {{options.lanes, options.batch, options.base}};
  if (options.bench.smoke && options.lanes == 0) shapes = {{2, 8, 8}};
  Report report("population", device, commit, options.bench);
  std::string problems;
  for (const Shape& shape : shapes) {
    time_shape(shape, options, dataset, name, report);
    if (!options.peers) continue;
    std::vector<std::string> arguments{"--device", name.text(),
                                       "--lanes",  std::to_string(shape.lanes),
                                       "--batch",  std::to_string(shape.batch),
                                       "--base",   std::to_string(shape.base),
                                       "--dtype",  peer_type(options.precision, device)};
    if (options.bench.smoke) arguments.push_back("--smoke");
    for (const char* script : {"population_torch.py", "population_jax.py"}) {
      std::string problem;
      for (const Case& peer : run_peers(script, arguments, &problem)) report.add(peer);
      if (!problem.empty()) problems += fmt::format("peers: {}\n", problem);
    }
  }
  std::string choices;
  for (const auto& [key, choice] : lanes::conv_choices()) choices += fmt::format("  {}: {}\n", key, choice);
  if (!choices.empty()) choices = "convolutions, as they were chosen:\n" + choices;
  return report.text() + choices + problems;
}

}  // namespace espalier::bench
