#include "bench/gather_bench.h"

#include <fmt/format.h>

#include "bench/random_images.h"
#include "espalier/data/iterator.h"
#include "espalier/data/sources/source.h"
#include "espalier/tensor/device.h"

namespace espalier::bench {
namespace {

using data::GatherIterator;
using data::IteratorOptions;

constexpr double kBytesPerUs = 4.3e6;  // what one H200 was measured to copy: 4.3 TB/s, read and written

// Reads every stored byte once and writes every output byte once.
double floor_us(const data::ResidentSplit& split, int64_t samples, int64_t out_bytes) {
  int64_t bytes = samples * 16;  // labels, read and written
  for (const auto& field : split.fields) {
    const int64_t values = field.values.numel() / std::max<int64_t>(1, field.values.size(0));
    bytes += samples * values * (static_cast<int64_t>(field.values.element_size()) + out_bytes);
  }
  return static_cast<double>(bytes) / kBytesPerUs;
}

void time_shape(const std::shared_ptr<const data::ResidentDataset>& dataset, const DeviceName& device,
                int64_t envs, int64_t batch, const TimingPlan& plan, Report& report) {
  const data::PlanOptions split{
      .kind = data::PlanKind::kSplit,
      .n_envs = envs,
      .batch_size_per_env = batch,
      .env_devices = std::vector<std::string>(static_cast<size_t>(envs), device.text()),
      .seed = 42};
  const bool on_gpu = !dataset->device.is_cpu();
  const auto type = on_gpu ? at::kBFloat16 : at::kFloat;
  GatherIterator iterator(IteratorOptions::training(split, type), {dataset}, data::Split::kTrain);
  uint64_t epoch = 0;
  iterator.begin_epoch(epoch);
  const auto stacked = [&] {
    auto batches = iterator.next_stacked();
    if (!batches) {
      iterator.begin_epoch(++epoch);
      batches = iterator.next_stacked();
    }
  };
  const auto owned = [&] {
    auto batches = iterator.next();
    if (!batches) {
      iterator.begin_epoch(++epoch);
      batches = iterator.next();
    }
  };
  const std::string shapes = fmt::format("{} x {}", envs, batch);
  const double floor =
      on_gpu ? floor_us(dataset->train, envs * batch, static_cast<int64_t>(c10::elementSize(type))) : 0;
  const std::string note = fmt::format("crop, flip, normalise, {}", on_gpu ? "bf16" : "fp32");
  report.add({"espalier, stacked", shapes, time_calls(dataset->device, plan, stacked), floor, note});
  report.add(
      {"espalier, a tensor an environment", shapes, time_calls(dataset->device, plan, owned), floor, note});
}

}  // namespace

std::string run_gather_bench(const GatherBenchOptions& options, const std::string& commit,
                             const Progress& progress) {
  const DeviceName name = choose_device(options.device);
  const c10::Device device = torch_device(name);
  const data::ResidentConfig resident{.validation = 0};
  data::SourceConfig source;
  source.data = options.data;
  const auto dataset = data::make_resident(
      options.data.empty() ? random_images() : load_source(source, progress), resident, device, progress);
  std::vector<std::pair<int64_t, int64_t>> shapes{{8, 512}, {128, 64}};
  if (options.lanes > 0) shapes = {{options.lanes, options.batch}};
  const TimingPlan plan = options.bench.smoke ? TimingPlan{1, 1, 1} : TimingPlan{};
  Report report("gather", device, commit, options.bench);
  std::string problem;
  for (const auto& [envs, batch] : shapes) {
    time_shape(dataset, name, envs, batch, plan, report);
    if (!options.peers) continue;
    std::vector<std::string> arguments{"--device",           name.text(), "--envs",
                                       std::to_string(envs), "--batch",   std::to_string(batch)};
    if (options.bench.smoke) arguments.push_back("--smoke");
    for (const Case& peer : run_peers("gather_torch.py", arguments, &problem)) report.add(peer);
  }
  return report.text() + (problem.empty() ? "" : fmt::format("peers: {}\n", problem));
}

}  // namespace espalier::bench
