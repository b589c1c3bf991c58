#include "bench/first_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "espalier/core/random/philox.h"
#include "espalier/tensor/file.h"

namespace espalier::bench {
namespace {

constexpr std::array<std::string_view, 2> kCompared{"host.block0.conv.weight", "host.classifier.weight"};

// Numbers of [-0.5, 0.5) that depend on the seed alone, row-major.
at::Tensor noise_like(const at::Tensor& values, uint64_t seed) {
  const at::Tensor noise = at::empty(values.sizes(), at::kFloat);
  float* const out = noise.mutable_data_ptr<float>();
  for (int64_t i = 0; i < noise.numel(); ++i)
    out[i] = static_cast<float>(philox4x32(seed, static_cast<uint32_t>(i), 0, 0, 0)[0]) * 0x1p-32f - 0.5f;
  return noise.to(values.device(), values.scalar_type());
}

}  // namespace

train::PopulationConfig first_step_config(train::PopulationConfig config) {
  config.learning_rate = 0.1;
  config.schedule = train::RateCurve::kConstant;
  config.warm_up = 0;
  config.seed_warm_up = 0;
  config.momentum = 0.9;
  config.weight_decay = 5e-4;
  config.label_smoothing = 0;
  config.clip = 0;
  config.graphs = false;
  return config;
}

void stir(grow::NetworkStack& population) {
  const c10::NoGradGuard no_grad;
  uint64_t seed = 0;
  for (int64_t lane = 0; lane < population.num_lanes(); ++lane)
    for (const NamedTensor& value : population.lane_values(lane))
      if (!value.name.ends_with("running_mean") && !value.name.ends_with("running_var"))
        value.tensor.add_(noise_like(value.tensor, ++seed), 0.2);
  population.refresh();
}

void write_first_step(const std::string& path, train::Shard& shard) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  grow::NetworkStack& population = shard.population();
  for (int64_t lane = 0; lane < population.num_lanes(); ++lane)
    for (const NamedTensor& value : population.lane_values(lane))
      tensors.emplace_back(fmt::format("{}.{}", lane, value.name),
                           value.tensor.detach().to(at::kCPU, at::kFloat).clone());
  train::TrainStep& step = shard.step();
  step.begin_epoch(0);
  step.run();
  tensors.emplace_back("images", step.batch().images()[0].to(at::kCPU, at::kFloat));
  tensors.emplace_back("labels", step.batch().labels().to(at::kCPU));
  const std::vector<train::LaneMetrics> metrics = step.metrics();
  const at::Tensor losses = at::empty({population.num_lanes()}, at::kFloat);  // [L]
  for (size_t lane = 0; lane < metrics.size(); ++lane)
    losses.mutable_data_ptr<float>()[lane] = static_cast<float>(metrics[lane].loss);
  tensors.emplace_back("losses", losses);
  for (int64_t lane = 0; lane < population.num_lanes(); ++lane)
    for (const NamedTensor& value : population.lane_values(lane))
      if (std::ranges::find(kCompared, value.name) != kCompared.end())
        tensors.emplace_back(fmt::format("{}.after.{}", lane, value.name),
                             value.tensor.detach().to(at::kCPU, at::kFloat).clone());
  write_tensors(path, tensors, {});
}

}  // namespace espalier::bench
