#include "bench/linet/linet_bench.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/linet/plain.h"
#include "bench/scratch_folder.h"
#include "espalier/core/error.h"
#include "espalier/data/resident.h"
#include "espalier/lanes/conv/choice.h"
#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/norm/layer.h"
#include "espalier/lanes/optim/gradients.h"
#include "espalier/lanes/stack.h"
#include "espalier/linet/file.h"
#include "espalier/linet/network.h"
#include "espalier/tensor/captured_graphs.h"
#include "espalier/tensor/device.h"
#include "espalier/tensor/file.h"
#include "espalier/train/population/setup.h"
#include "espalier/watch/audit/layout.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::bench {
namespace {

const std::vector<int64_t> kChannels{3, 1, 1};

struct Workload {
  linet::LinetShape shape;
  LinetBenchOptions options;  // with --smoke in small
  at::Device device;
  at::ScalarType compute;
  std::vector<at::Tensor> images;  // S x [1,B,C_i,H,W], channels-last lanes
  at::Tensor labels;               // [1,B]
  std::string text;
  TimingPlan plan;
};

Workload workload_of(LinetBenchOptions options) {
  if (options.bench.smoke) {
    options.width = 0.125;
    options.batch = 2;
    options.height = options.columns = 64;
  }
  const c10::Device device = torch_device(choose_device(options.device));
  Workload load{.shape = linet::linet_preset(options.model, options.width),
                .options = options,
                .device = device,
                .compute = train::precision_type(options.precision, device),
                .plan = options.bench.smoke ? TimingPlan{1, 1, 1}
                                            : TimingPlan{.warm_up = 5, .samples = 20, .calls = 1}};
  load.shape.in_channels = kChannels;
  for (const int64_t channels : kChannels) {
    const at::Tensor x = lanes::empty_lanes({1, options.batch, channels, options.height, options.columns},
                                            at::TensorOptions(device).dtype(load.compute));
    load.images.push_back(x.copy_(at::randn(x.sizes())));
  }
  load.labels = at::randint(0, load.shape.num_classes, {1, options.batch}, at::kLong).to(device);
  load.text = fmt::format("{}, streams 3,1,1, width {:g}, batch {}, {}x{}, {}", options.model, options.width,
                          options.batch, options.height, options.columns, type_name(load.compute));
  return load;
}

// What one way of writing it comes to: its time, and what its kernels do.
struct Way {
  std::string name;
  watch::WorkByKind work;
  int64_t num_kernels = 0;
  int64_t num_conversions = 0;
};

Way measure(const Workload& load, const std::string& name, const std::string& note, double floor_us,
            const std::function<void()>& body, Report& report) {
  report.add({.name = name,
              .shapes = load.text,
              .timing = time_calls(load.device, load.plan, body),
              .floor_us = floor_us,
              .note = note});
  const watch::LayoutReport audit = watch::audit_layout(load.device, 1, body);
  return {name, audit.work, audit.num_kernels, audit.num_conversions()};
}

at::Tensor gradient_of(const at::Tensor& loss, const std::vector<at::Tensor>& parameters, size_t which) {
  return torch::autograd::grad({loss}, parameters, {at::ones_like(loss)}, /*retain_graph=*/std::nullopt,
                               /*create_graph=*/false, /*allow_unused=*/true)[which];
}

// Sequential streams, or packed ones, with torch's own operators.
Way measure_plain(const Workload& load, linet::Linet& net, const std::string& name, MemoryFormat format,
                  StreamPacking packing, Report& report) {
  PlainLinet plain(net, load.compute, format, packing);
  std::vector<at::Tensor> x;
  for (const at::Tensor& image : load.images)
    x.push_back(image.select(0, 0).contiguous(torch_format(format)));
  const auto body = [&] {
    const at::Tensor loss = at::cross_entropy_loss(plain.forward(x), load.labels.select(0, 0));
    gradient_of(loss, plain.parameters(), 0);
  };
  return measure(load, name, "torch's operators, norm and ReLU apart", /*floor_us=*/0, body, report);
}

// All ways compute one thing: the loss, before anything is timed.
void check_alike(const Workload& load, linet::Linet& net) {
  PlainLinet plain(net, load.compute, MemoryFormat::kChannelsLast, StreamPacking::kSequential),
      grouped(net, load.compute, MemoryFormat::kChannelsLast, StreamPacking::kGrouped);
  std::vector<at::Tensor> x;
  for (const at::Tensor& image : load.images) x.push_back(image.select(0, 0));
  const at::Tensor labels = load.labels.select(0, 0);
  const double own = lanes::lane_cross_entropy(net.forward(load.images).logits, load.labels).item<double>();
  const double first = at::cross_entropy_loss(plain.forward(x), labels).item<double>();
  const double second = at::cross_entropy_loss(grouped.forward(x), labels).item<double>();
  const double allowed = load.compute == at::kFloat ? 1e-3 : 0.1;
  if (!(std::abs(own - first) <= allowed && std::abs(own - second) <= allowed))
    fail("bench linet: lanes give a loss of {}, sequential streams {}, packed ones {}: one of them is wrong",
         own, first, second);
}

// What the passes of all streams and the integrated path take at least, layer by layer: a convolution (or a
// product, which integrates) reads x and writes y, forward and for either gradient, or takes as long as its
// products; a norm with its ReLU reads y twice and writes it, forward, and reads gradient and y twice and
// writes once on the way back.
double floor_us(const Workload& load, const MachineRates& rates) {
  const auto bytes = static_cast<double>(c10::elementSize(load.compute));
  const auto streams = static_cast<double>(load.shape.num_streams());
  double floor = 0;
  // inside: channels of one stream's input; previous: those of the integrated path's, 0 in the stem.
  const auto add_layer = [&](double images, double pixels_in, double pixels_out, double inside,
                             double filters, double kernel, double previous) {
    const double x = images * pixels_in * inside * bytes, y = images * pixels_out * filters * bytes;
    floor +=
        3 * streams * rates.floor_us(x + y, 2 * images * pixels_out * inside * filters * kernel * kernel);
    const double joined = streams * filters + previous;  // channels that the integrated path is made of
    floor += 3 * rates.floor_us(images * pixels_out * joined * bytes + y,
                                2 * images * pixels_out * joined * filters);
    floor += (streams + 1) * rates.floor_us(8 * y, 0);
  };
  const auto images = static_cast<double>(load.images[0].size(1));
  const auto halved = [](int64_t side) { return (side + 1) / 2; };
  int64_t rows = load.images[0].size(3), columns = load.images[0].size(4);
  double in_all = 0;
  for (const int64_t channels : load.shape.in_channels) in_all += static_cast<double>(channels);
  auto width = static_cast<double>(load.shape.widths[0]);
  auto pixels = static_cast<double>(rows * columns);
  rows = halved(rows), columns = halved(columns);
  add_layer(images, pixels, static_cast<double>(rows * columns), in_all / streams, width, 7, 0);
  rows = halved(rows), columns = halved(columns);
  double channels = width;
  const auto wider = static_cast<double>(linet::expansion(load.shape.block));
  for (size_t stage = 0; stage < load.shape.stages.size(); ++stage) {
    width = static_cast<double>(load.shape.widths[stage]);
    for (int64_t block = 0; block < load.shape.stages[stage]; ++block) {
      const auto before = static_cast<double>(rows * columns);
      if (stage > 0 && block == 0) rows = halved(rows), columns = halved(columns);
      const auto after = static_cast<double>(rows * columns);
      if (load.shape.block == linet::BlockKind::kBasic) {
        add_layer(images, before, after, channels, width, 3, channels);
        add_layer(images, after, after, width, width, 3, width);
      } else {
        add_layer(images, before, before, channels, width, 1, channels);
        add_layer(images, before, after, width, width, 3, width);
        add_layer(images, after, after, width, width * wider, 1, width);
      }
      if (channels != width * wider || before != after)
        add_layer(images, before, after, channels, width * wider, 1, channels);
      channels = width * wider;
    }
  }
  return floor;
}

std::vector<Way> measure_lanes(const Workload& load, linet::Linet& net, const MachineRates& rates,
                               Report& report) {
  const std::vector<lanes::LaneParameter*> parameters = lanes::without_names(net.parameters());
  const auto body = [&] {
    lanes::lane_backward(lanes::lane_cross_entropy(net.forward(load.images).logits, load.labels), parameters);
  };
  const double floor = floor_us(load, rates);
  std::vector<Way> ways{measure(load, "lanes", "norm, residual and ReLU fused", floor, body, report)};
  StepGraphs graphs({.device = load.device});
  if (!graphs.is_capturing()) return ways;
  ways.push_back(measure(
      load, "lanes, captured", "the same as one CUDA graph", floor, [&] { graphs.run("step", body); },
      report));
  return ways;
}

// Norm, residual and ReLU of the first stage, forward and backward: three operators, and one.
void measure_norms(const Workload& load, Report& report) {
  const auto options = at::TensorOptions(load.device).dtype(load.compute);
  const at::Tensor& image = load.images[0];
  const std::vector<int64_t> sizes{std::ssize(kChannels) + 1, image.size(1), load.shape.widths[0],
                                   (image.size(3) + 3) / 4, (image.size(4) + 3) / 4};
  const auto make = [&] {
    const at::Tensor made = lanes::empty_lanes(sizes, options);
    made.copy_(at::randn(sizes));
    return made;
  };
  const at::Tensor x = make().set_requires_grad(true), residual = make().set_requires_grad(true),
                   grad = make();
  const lanes::LaneBatchNorm2d norm(sizes[0], sizes[2], at::TensorOptions(load.device).dtype(at::kFloat));
  const auto backward = [&](const at::Tensor& y) {
    torch::autograd::grad({y}, {x, residual, norm.weight.value()}, {grad});
  };
  const std::string shapes =
      fmt::format("{} x {} x {}x{}x{}", sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]);
  report.add(
      {.name = "norm, add, ReLU apart",
       .shapes = shapes,
       .timing = time_calls(load.device, load.plan,
                            [&] { backward(at::relu(norm.forward(x, lanes::Mode::kTrain) + residual)); }),
       .note = "all paths, forward and backward"});
  report.add(
      {.name = "norm, add, ReLU fused",
       .shapes = shapes,
       .timing = time_calls(load.device, load.plan,
                            [&] { backward(norm.forward_residual(x, residual, lanes::Mode::kTrain)); }),
       .note = "all paths, forward and backward"});
}

std::string work_table(const std::vector<Way>& ways) {
  std::vector<std::string> head{"ms, and launches"};
  for (const Way& way : ways) head.push_back(">" + way.name);
  watch::Table table(head);
  for (int kind = 0; kind < watch::kNumWorkKinds; ++kind) {
    std::vector<std::string> row{std::string(watch::work_text(static_cast<watch::WorkKind>(kind)))};
    for (const Way& way : ways) {
      const watch::Work& work = way.work[static_cast<size_t>(kind)];
      row.push_back(work.launches == 0 ? "" : fmt::format("{:.2f} ({})", work.total_us / 1e3, work.launches));
    }
    table.add_row(row);
  }
  return "kernels by what they do\n" + table.text();
}

std::string conversions_text(const std::vector<Way>& ways) {
  std::string text = "conversions between layouts and reformatting kernels per step:";
  for (const Way& way : ways) text += fmt::format(" {} {};", way.name, way.num_conversions);
  text.back() = '\n';
  return text;
}

// PyTorch in Python, from our weights and inputs: it has to give our loss before it is timed.
void add_python(const Workload& load, linet::Linet& net, Report& report) {
  const ScratchFolder scratch("", "linet");
  const std::string weights = (scratch.path() / "weights.safetensors").string(),
                    pass = (scratch.path() / "first_pass.safetensors").string();
  linet::write_stream_weights(weights, net, {});
  const c10::NoGradGuard no_grad;
  linet::NamedTensors tensors{{"labels", load.labels.select(0, 0).to(at::kCPU)},
                              {"loss", lanes::lane_cross_entropy(net.forward(load.images).logits, load.labels)
                                           .select(0, 0)
                                           .to(at::kCPU, at::kFloat)}};
  for (size_t i = 0; i < load.images.size(); ++i)
    tensors.emplace_back(fmt::format("input.{}", i), load.images[i].select(0, 0).to(at::kCPU, at::kFloat));
  write_tensors(pass, tensors, {});
  const LinetBenchOptions& options = load.options;
  report.add_peers({"linet_torch.py"},
                   {"--device", load.device.str(), "--model", options.model, "--width",
                    fmt::format("{:g}", options.width), "--batch", std::to_string(options.batch), "--size",
                    fmt::format("{}x{}", options.height, options.columns), "--dtype", type_name(load.compute),
                    "--weights", weights, "--first-pass", pass});
}

linet::Linet network_of(const Workload& load) {
  return {load.shape, at::TensorOptions(load.device).dtype(at::kFloat), load.compute};
}

}  // namespace

void measure_linet(const LinetBenchOptions& options, const MachineRates& rates, Report& report) {
  const Workload load = workload_of(options);
  linet::Linet net = network_of(load);
  check_alike(load, net);
  measure_lanes(load, net, rates, report);
  if (options.peers) add_python(load, net, report);
}

std::string run_linet_bench(const LinetBenchOptions& options, const std::string& commit) {
  const Workload load = workload_of(options);
  Report report("linet", load.device, commit, options.bench);
  linet::Linet net = network_of(load);
  check_alike(load, net);
  std::vector<Way> ways =
      measure_lanes(load, net, measure_rates(load.device, load.compute, options.bench.smoke), report);
  std::swap(ways.front(), ways.back());
  using enum StreamPacking;
  ways.push_back(measure_plain(load, net, "sequential NCHW", MemoryFormat::kContiguous, kSequential, report));
  ways.push_back(
      measure_plain(load, net, "sequential NHWC", MemoryFormat::kChannelsLast, kSequential, report));
  ways.push_back(
      measure_plain(load, net, "packed at run time", MemoryFormat::kChannelsLast, kGrouped, report));
  measure_norms(load, report);
  if (options.peers) add_python(load, net, report);
  std::string words;
  for (const auto& [key, choice] : lanes::conv_choices()) words += fmt::format("  {}: {}\n", key, choice);
  const bool has_kernels = ways.front().num_kernels > 0;
  return report.text() + (has_kernels ? work_table(ways) : "no kernels to tell apart on the CPU\n") +
         conversions_text(ways) + words;
}

}  // namespace espalier::bench
