#include "bench/gather_bench.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "bench/random_images.h"
#include "bench/scratch_folder.h"
#include "espalier/core/error.h"
#include "espalier/data/iterator.h"
#include "espalier/data/sources/source.h"
#include "espalier/tensor/device.h"
#include "espalier/tensor/file.h"

namespace espalier::bench {
namespace {

using data::GatherIterator;
using data::IteratorOptions;

// Reads every stored byte once and writes every output byte once.
double floor_us(const data::ResidentSplit& split, int64_t samples, int64_t out_bytes,
                const MachineRates& rates) {
  int64_t bytes = samples * 16;  // labels, read and written
  for (const auto& field : split.fields) {
    const int64_t values = field.values.numel() / std::max<int64_t>(1, field.values.size(0));
    bytes += samples * values * (static_cast<int64_t>(field.values.element_size()) + out_bytes);
  }
  return rates.floor_us(static_cast<double>(bytes), 0);
}

data::PlanOptions split_of(const DeviceName& device, int64_t envs, int64_t batch) {
  return {.kind = data::PlanKind::kSplit,
          .n_envs = envs,
          .batch_size_per_env = batch,
          .env_devices = std::vector<std::string>(static_cast<size_t>(envs), device.text()),
          .seed = 42};
}

// Our first batch without crops and flips.
struct FirstBatch {
  at::Tensor order;     // [E,B] i64 cpu: which samples it is made of
  at::Tensor images;    // [E,B,C,H,W] f32, normalised
  at::Tensor labels;    // [E,B] i64
  std::string checked;  // what it was compared with, and how far it is off
};

// Compares it with what peers do: index, then normalise.
FirstBatch checked_batch(const std::shared_ptr<const data::ResidentDataset>& dataset,
                         const DeviceName& device, int64_t envs, int64_t batch) {
  IteratorOptions options = IteratorOptions::training(split_of(device, envs, batch), at::kFloat);
  options.augmentation.enabled = false;
  GatherIterator iterator(options, {dataset}, data::Split::kTrain);
  iterator.begin_epoch(0);
  const auto batches = iterator.next_stacked();
  if (!batches)
    fail("bench gather: --lanes {} --batch {}: want a batch of fewer samples than there are", envs, batch);
  const data::ResidentField& field = dataset->train.fields[0];
  const at::Tensor scale = field.affine[0].view({1, -1, 1, 1}), shift = field.affine[1].view({1, -1, 1, 1});
  double largest = 0;
  FirstBatch first{.order = at::empty({envs, batch}, at::kLong),
                   .images = batches->front().fields[0],
                   .labels = batches->front().labels};
  for (int64_t env = 0; env < envs; ++env) {
    first.order.select(0, env).copy_(at::tensor(iterator.plan().samples(env, 0, 0), at::kLong));
    const at::Tensor samples = first.order.select(0, env).to(field.values.device());
    const at::Tensor want =
        field.values.index_select(0, samples).to(dataset->device, at::kFloat) * scale + shift;  // [B,C,H,W]
    const at::Tensor got = first.images.select(0, env);
    largest = std::max(largest, (got - want).abs().max().item<double>());
    if (!first.labels.select(0, env).equal(
            dataset->train.labels.index_select(0, samples.to(dataset->train.labels.device()))))
      fail("bench gather: environment {} has other labels than plain indexing gives: one of the two is wrong",
           env);
  }
  // A fused multiply-add rounds once where two operations round twice, of values of a few units.
  if (!(largest <= 2e-6))
    fail("bench gather: images are {} off what plain indexing gives: one of the two is wrong", largest);
  first.checked = fmt::format("plain indexing, without crops and flips: within {:.0e}", largest);
  return first;
}

// All that peers need to make the same batch from the same samples: bench/peers/gather_torch.py reads it.
void write_first_batch(const std::string& path, const data::ResidentSplit& split, const FirstBatch& first) {
  const data::ResidentField& field = split.fields[0];
  write_tensors(path,
                {{"values", field.values},
                 {"affine", field.affine},
                 {"labels", split.labels},
                 {"order", first.order},
                 {"batch.images", first.images},
                 {"batch.labels", first.labels}},
                {});
}

void time_shape(const std::shared_ptr<const data::ResidentDataset>& dataset, const DeviceName& device,
                int64_t envs, int64_t batch, const std::string& checked, const TimingPlan& plan,
                const MachineRates& rates, Report& report) {
  const data::PlanOptions split = split_of(device, envs, batch);
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
      floor_us(dataset->train, envs * batch, static_cast<int64_t>(c10::elementSize(type)), rates);
  const std::string note = fmt::format("crop, flip, normalise, {}", on_gpu ? "bf16" : "fp32");
  report.add({.name = "espalier, stacked",
              .shapes = shapes,
              .timing = time_calls(dataset->device, plan, stacked),
              .floor_us = floor,
              .note = note,
              .checked = checked});
  report.add({.name = "espalier, one tensor per environment",
              .shapes = shapes,
              .timing = time_calls(dataset->device, plan, owned),
              .floor_us = floor,
              .note = note});
}

}  // namespace

void measure_gather(const GatherBenchOptions& options, const MachineRates& rates, Report& report,
                    const Progress& progress) {
  const DeviceName name = choose_device(options.device);
  const data::ResidentConfig resident{.validation = 0};
  data::SourceConfig source;
  source.data = options.data;
  const auto dataset =
      data::make_resident(options.data.empty() ? random_images() : load_source(source, progress), resident,
                          torch_device(name), progress);
  std::vector<std::pair<int64_t, int64_t>> shapes{{8, 512}, {128, 64}};
  if (options.lanes > 0) shapes = {{options.lanes, options.batch}};
  const TimingPlan plan = options.bench.smoke ? TimingPlan{1, 1, 1} : TimingPlan{};
  for (const auto& [envs, batch] : shapes) {
    const FirstBatch first = checked_batch(dataset, name, envs, batch);
    time_shape(dataset, name, envs, batch, first.checked, plan, rates, report);
    if (!options.peers) continue;
    const ScratchFolder scratch("", "gather");
    const std::string first_batch = (scratch.path() / "first_batch.safetensors").string();
    write_first_batch(first_batch, dataset->train, first);
    report.add_peers({"gather_torch.py"}, {"--device", name.text(), "--envs", std::to_string(envs), "--batch",
                                           std::to_string(batch), "--first-batch", first_batch});
  }
}

std::string run_gather_bench(const GatherBenchOptions& options, const std::string& commit,
                             const Progress& progress) {
  const c10::Device device = torch_device(choose_device(options.device));
  Report report("gather", device, commit, options.bench);
  measure_gather(options, measure_rates(device, at::kFloat, options.bench.smoke), report, progress);
  return report.text();
}

}  // namespace espalier::bench
