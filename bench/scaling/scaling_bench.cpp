#include "bench/scaling/scaling_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "bench/random_images.h"
#include "bench/rates.h"
#include "bench/results.h"
#include "bench/scaling/plot.h"
#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/data/resident.h"
#include "espalier/lanes/conv/choice.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::bench {
namespace {

// One step that is timed: so many networks of three blocks on square images.
struct Size {
  int64_t lanes, batch, base, side;
};

struct Axis {
  const char* name;
  int64_t Size::*member;
};
constexpr std::array<Axis, 4> kAxes{{{"lanes", &Size::lanes},
                                     {"batch", &Size::batch},
                                     {"channels", &Size::base},
                                     {"resolution", &Size::side}}};

struct Range {
  Size around;        // what stays as it is, but for the axis
  int64_t low, high;  // powers of two between, both included
};

Range range_of(const Axis& axis, bool on_gpu, bool smoke) {
  const std::string_view name = axis.name;
  if (smoke) return {{1, 4, 4, 8}, name == "resolution" ? 8 : 1, name == "resolution" ? 16 : 4};
  if (!on_gpu) {
    const Size around{2, 16, 8, 32};
    if (name == "lanes") return {around, 1, 16};
    if (name == "batch") return {around, 2, 64};
    return name == "channels" ? Range{around, 4, 32} : Range{around, 8, 64};
  }
  if (name == "lanes") return {{1, 64, 8, 32}, 1, 512};
  const Size around{32, 64, 8, 32};
  if (name == "batch") return {around, 8, 512};
  return name == "channels" ? Range{around, 4, 64} : Range{around, 8, 128};
}

// What stays as it is: "batch 64, base 8, 32x32".
std::string shapes_text(const Axis& axis, const Size& size) {
  const std::string_view name = axis.name;
  std::string text;
  const auto add = [&](std::string_view of, const std::string& words) {
    if (of != name) text += (text.empty() ? "" : ", ") + words;
  };
  add("lanes", fmt::format("{} lanes", size.lanes));
  add("batch", fmt::format("batch {}", size.batch));
  add("channels", fmt::format("base {}", size.base));
  add("resolution", fmt::format("{0}x{0}", size.side));
  return text;
}

Timing time_size(const Size& size, const ScalingBenchOptions& options, const DeviceName& name) {
  const c10::Device device = torch_device(name);
  const bool smoke = options.bench.smoke;
  train::PopulationConfig training;
  training.lanes = size.lanes;
  training.batch = size.batch;
  training.precision = options.precision;
  // Some batches of images are enough: which of them a step takes makes no difference.
  const auto dataset = data::make_resident(random_images(size.side, std::max<int64_t>(2 * size.batch, 256)),
                                           {.validation = 16}, device, {});
  train::Shard shard({.options = training,
                      .dataset = dataset,
                      .device = name,
                      .host = grow::cnn_host({.n_blocks = 3, .base_channels = size.base})});
  train::TrainStep& step = shard.step();
  int64_t done = 0;
  const auto one_step = [&] {
    if (done++ % shard.batches_per_epoch() == 0) step.begin_epoch(0);
    step.run();
  };
  const TimingPlan plan = smoke             ? TimingPlan{1, 1, 1}
                          : device.is_cpu() ? TimingPlan{.warm_up = 3, .samples = 9, .calls = 2}
                                            : TimingPlan{.warm_up = 20, .samples = 15, .calls = 10};
  return time_calls(device, plan, one_step);
}

std::string fit_text(const ScalingCurve& curve) {
  const ScalingFit& fit = curve.fit;
  const auto [first, last] = std::pair{curve.points.front().size, curve.points.back().size};
  std::string text = fmt::format("{} ({}): ", curve.axis, curve.shapes);
  const std::string line = fmt::format("{:.4g} us + {:.4g} (+- {:.2g}) us for each", fit.start_us,
                                       fit.slope_us, fit.slope_error_us);
  text += fit.floor_us > 0
              ? fmt::format("the larger of {:.4g} us and {}; knee at {:.3g}", fit.floor_us, line, fit.knee)
              : fmt::format("{}; no knee between {:g} and {:g}", line, first, last);
  return text + fmt::format("; off by {:.0f} % at most, {:.0f} % on average\n", 100 * fit.largest_error,
                            100 * fit.mean_error);
}

void write(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

std::string run_scaling_bench(const ScalingBenchOptions& options, const std::string& commit,
                              const std::string& command, const Progress& progress) {
  for (const std::string& wanted : options.axes)
    if (std::ranges::find(kAxes, wanted, &Axis::name) == kAxes.end())
      fail_usage("--axes '{}': want some of lanes, batch, channels, resolution", wanted);
  const DeviceName name = choose_device(options.device);
  const c10::Device device = torch_device(name);
  lanes::set_conv_choosing(lanes::ConvChoosing::kMeasure);
  const std::string precision = type_name(train::precision_type(options.precision, device));
  const std::string machine = machine_text(device), began = now_text();
  std::vector<ScalingCurve> curves;
  // After every axis: a run that is stopped keeps what it has measured.
  const auto keep = [&] {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ScalingCurve& curve : curves) {
      nlohmann::ordered_json points = nlohmann::ordered_json::array();
      for (const Point& point : curve.points)
        points.push_back(
            {{"size", point.size}, {"median_us", point.time_us}, {"fit_us", curve.fit.at(point.size)}});
      list.push_back({{"axis", curve.axis},
                      {"shapes", curve.shapes},
                      {"points", std::move(points)},
                      {"fit",
                       {{"model", "max(floor_us, start_us + slope_us * size)"},
                        {"floor_us", curve.fit.floor_us},
                        {"start_us", curve.fit.start_us},
                        {"slope_us", curve.fit.slope_us},
                        {"slope_error_us", curve.fit.slope_error_us},
                        {"knee", curve.fit.knee},
                        {"largest_error", curve.fit.largest_error},
                        {"mean_error", curve.fit.mean_error}}}});
    }
    const nlohmann::ordered_json whole{{"format", 1},
                                       {"machine", machine},
                                       {"commit", commit},
                                       {"command", command},
                                       {"began", began},
                                       {"precision", precision},
                                       {"smoke", options.bench.smoke},
                                       {"curves", list}};
    write(options.out, whole.dump(1) + "\n");
    write(options.svg, scaling_svg(curves, {fmt::format("{}, {}, {}, commit {}", machine, precision,
                                                        began.substr(0, 10), commit),
                                            command}));
  };
  watch::Table table({"axis", ">size", ">median us", ">best us", ">fit us", ">us for each"});
  std::string fits;
  for (const Axis& axis : kAxes) {
    if (!options.axes.empty() && std::ranges::find(options.axes, axis.name) == options.axes.end()) continue;
    const Range range = range_of(axis, !device.is_cpu(), options.bench.smoke);
    ScalingCurve curve{.axis = axis.name, .shapes = shapes_text(axis, range.around)};
    std::vector<Timing> timings;
    for (int64_t value = range.low; value <= range.high; value *= 2) {
      throw_if_interrupted();
      const std::string title = fmt::format("{} {}", axis.name, value);
      if (progress) progress(title, 0, 1);
      Size size = range.around;
      size.*axis.member = value;
      timings.push_back(time_size(size, options, name));
      curve.points.push_back({static_cast<double>(value), timings.back().median_us});
      if (progress) progress(title, 1, 1);
    }
    curve.fit = fit_scaling(curve.points);
    for (size_t i = 0; i < timings.size(); ++i) {
      const Point& point = curve.points[i];
      table.add_row({curve.axis, fmt::format("{:g}", point.size), fmt::format("{:.1f}", timings[i].median_us),
                     fmt::format("{:.1f}", timings[i].best_us),
                     fmt::format("{:.1f}", curve.fit.at(point.size)),
                     fmt::format("{:.2f}", point.time_us / point.size)});
    }
    curves.push_back(curve);
    fits += fit_text(curve);
    keep();
  }
  return fmt::format("a training step on {}, {}, {}, commit {}\n{}{}", machine, precision, began, commit,
                     table.text(), fits);
}

}  // namespace espalier::bench
