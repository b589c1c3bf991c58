#include "bench/layout_bench.h"

#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "bench/random_images.h"
#include "espalier/data/resident.h"
#include "espalier/lanes/conv/layer.h"
#include "espalier/lanes/entry.h"
#include "espalier/lanes/stack.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard.h"
#include "espalier/watch/audit/layout.h"

namespace espalier::bench {
namespace {

constexpr MemoryFormat kBoth[] = {MemoryFormat::kContiguous, MemoryFormat::kChannelsLast};

const char* name_of(MemoryFormat format) {
  return format == MemoryFormat::kChannelsLast ? "channels-last" : "NCHW";
}

// 10 passes to warm up, 100 that are timed.
TimingPlan plan_of(const LayoutBenchOptions& options) {
  return options.bench.smoke ? TimingPlan{1, 1, 1} : TimingPlan{.warm_up = 10, .samples = 100, .calls = 1};
}

std::string reduction(const std::string& what, double from_us, double to_us) {
  return fmt::format("{}: {:.1f} us in NCHW, {:.1f} us channels-last: {:.0f} % less\n", what, from_us, to_us,
                     100 * (1 - to_us / from_us));
}

// A training step of one lane, gather included; and how often it converts or reformats.
std::string time_host(const LayoutBenchOptions& options, const DeviceName& device, const Progress& progress,
                      Report& report) {
  double medians[2] = {};
  std::string conversions;
  for (size_t i = 0; i < 2; ++i) {
    data::ResidentConfig resident{.validation = 512};
    resident.memory_format = kBoth[i];
    const auto dataset = data::make_resident(random_images(), resident, torch_device(device), progress);
    train::PopulationConfig training;
    training.lanes = 1;
    training.batch = options.batch;
    training.precision = options.precision;
    training.resident = resident;
    const grow::HostMaker host = grow::cnn_host({.n_blocks = 3, .base_channels = options.base});
    train::Shard trainer({.options = training, .dataset = dataset, .device = device, .host = host});
    train::TrainStep& step = trainer.step();
    step.begin_epoch(0);
    const Timing timing = time_calls(dataset->device, plan_of(options), [&] { step.run(); });
    medians[i] = timing.median_us;
    step.begin_epoch(0);
    step.run_eagerly();
    const watch::LayoutReport audit = watch::audit_layout(dataset->device, 1, [&] { step.run_eagerly(); });
    report.add({.name = fmt::format("host, {}", name_of(kBoth[i])),
                .shapes = fmt::format("1 x {}, base {}", options.batch, options.base),
                .timing = timing,
                .note = fmt::format("training step, {} conversions", audit.num_conversions())});
    conversions += fmt::format("conversions and reformatting kernels per step, {}: {}\n", name_of(kBoth[i]),
                               audit.num_conversions());
  }
  return reduction("a training step of the host", medians[0], medians[1]) + conversions;
}

// 3 to 64 channels, 3x3, forward.
std::string time_convolution(const LayoutBenchOptions& options, c10::Device device, Report& report) {
  const c10::NoGradGuard no_grad;
  const auto tensors = at::TensorOptions(device).dtype(train::precision_type(options.precision, device));
  double medians[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    const at::Tensor x = lanes::empty_lanes({1, options.batch, 3, 32, 32}, tensors, kBoth[i]);
    const at::Tensor weight = lanes::empty_lanes({1, 64, 3, 3, 3}, tensors, kBoth[i]);
    x.copy_(at::randn(x.sizes()));
    weight.copy_(at::randn(weight.sizes()));
    const Timing timing =
        time_calls(device, plan_of(options), [&] { lanes::lane_conv2d(x, weight, {}, {.padding = 1}); });
    medians[i] = timing.median_us;
    report.add({.name = fmt::format("convolution, {}", name_of(kBoth[i])),
                .shapes = fmt::format("{} x 3x32x32, 64 filters 3x3", options.batch),
                .timing = timing,
                .note = "forward"});
  }
  return reduction("one convolution, 3 to 64 channels", medians[0], medians[1]);
}

// What looking at a tensor costs that lies as it should.
std::string time_entry(const LayoutBenchOptions& options, c10::Device device) {
  const auto type = train::precision_type(options.precision, device);
  lanes::LaneEntry entry("x", MemoryFormat::kChannelsLast, type, device);
  const at::Tensor x = lanes::empty_lanes({8, 4, 3, 32, 32}, at::TensorOptions(device).dtype(type));
  constexpr int kCalls = 1000;
  const TimingPlan plan =
      options.bench.smoke ? TimingPlan{1, 1, 1} : TimingPlan{.warm_up = 2, .samples = 20, .calls = 1};
  const Timing timing = time_calls(at::kCPU, plan, [&] {
    for (int i = 0; i < kCalls; ++i) entry.enter(x, {3, 32, 32}, 8);
  });
  return fmt::format("the entry check of a channels-last tensor: {:.0f} ns, no work on the device\n",
                     timing.median_us * 1e3 / kCalls);
}

}  // namespace

std::string run_layout_bench(const LayoutBenchOptions& options, const std::string& commit,
                             const Progress& progress) {
  const DeviceName name = choose_device(options.device);
  const c10::Device device = torch_device(name);
  Report report("layout", device, commit, options.bench);
  std::string words = time_host(options, name, progress, report);
  words += time_convolution(options, device, report);
  words += time_entry(options, device);
  if (options.peers) {
    const bool is_full = train::precision_type(options.precision, device) == at::kFloat;
    report.add_peers({"layout_torch.py"},
                     {"--device", name.text(), "--batch", std::to_string(options.batch), "--base",
                      std::to_string(options.base), "--dtype", is_full ? "fp32" : "bf16"});
  }
  return report.text() + words;
}

}  // namespace espalier::bench
