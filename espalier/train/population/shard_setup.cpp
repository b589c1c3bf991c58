#include "espalier/train/population/shard_setup.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/data/cache.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"

namespace espalier::train {
namespace {

std::string text_of(const std::vector<DeviceName>& devices) {
  std::vector<std::string> names;
  for (const DeviceName& device : devices) names.push_back(device.text());
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace

std::vector<DeviceName> devices_of(const PopulationConfig& options) {
  if (options.devices.empty()) return {choose_device(std::nullopt)};
  if (std::ssize(options.devices) > options.lanes)
    fail_usage("--devices {}: want at most one per network, --lanes {}", text_of(options.devices),
               options.lanes);
  return options.devices;
}

std::vector<c10::Device> torch_devices_of(const PopulationConfig& options) {
  std::vector<c10::Device> devices;
  for (const DeviceName& device : devices_of(options)) devices.push_back(torch_device(device));
  return devices;
}

PopulationConfig placed(PopulationConfig options, const ranks::World& world) {
  if (world.is_alone() || !options.devices.empty()) return options;
  const int gpus = num_cuda_devices();
  if (gpus == 0) return options;
  options.devices = {{DeviceName::Kind::kCuda, static_cast<int>(world.local_rank() % gpus)}};
  return options;
}

PopulationConfig options_of_part(PopulationConfig options, int64_t num_parts) {
  options.lanes = (options.lanes + num_parts - 1) / num_parts;
  return options;
}

PopulationConfig options_of_rank(PopulationConfig options, const ranks::World& world) {
  return options_of_part(std::move(options), world.size());
}

ShardSetup shard_on(const DeviceName& device, const PopulationConfig& options, const Progress& progress) {
  grow::check_gates(options.gates);  // before data is read
  const auto dataset =
      data::DatasetCache::instance().ensure(options.source, options.resident, device, progress);
  chosen_field(options, specs_of(dataset->train));  // refused before anything is made
  return {.options = options, .dataset = dataset, .device = device};
}

std::vector<DeviceLanes> lanes_by_device(const PopulationConfig& options) {
  std::vector<DeviceLanes> places;
  const std::vector<DeviceName> devices = devices_of(options);
  for (int64_t lane = 0; lane < options.lanes; ++lane) {
    const DeviceName& device = devices[static_cast<size_t>(lane % std::ssize(devices))];
    const auto is_same = [&](const DeviceLanes& place) { return place.device.text() == device.text(); };
    auto found = std::ranges::find_if(places, is_same);
    if (found == places.end()) found = places.insert(found, {.device = device});
    found->lanes += 1;
  }
  return places;
}

JobNeeds needs_of(const PopulationConfig& options) {
  JobNeeds needs;
  if (options.controller != "none") needs.growth.emplace();
  return needs;
}

MemoryPlan job_parts(const PopulationNeeds& here, const JobNeeds& needs) {
  PopulationNeeds population = here;
  population.growth = needs.growth;
  population.on_failure = needs.on_failure;
  MemoryPlan plan = population_parts(population);
  for (const JobNeeds::Policy& policy : needs.policies)
    if (policy.options.device == here.device) plan.add(policy_parts(policy.options, policy.use));
  plan.add(device_parts(here.device));
  return plan;
}

std::vector<DeviceStart> check_devices(const PopulationConfig& options, std::span<const ShardSetup> shards,
                                       const JobNeeds& needs) {
  std::vector<DeviceStart> starts;
  const std::string remedy = fmt::format(
      "lower --lanes or --batch, add to --devices {}, or use --residency host", text_of(devices_of(options)));
  const auto add = [&](std::shared_ptr<const data::ResidentDataset> dataset, MemoryPlan plan) {
    check_fits(plan, remedy);
    starts.push_back({std::move(dataset), std::move(plan)});
  };
  for (const auto& [device, lanes] : lanes_by_device(options)) {
    const auto is_here = [&](const ShardSetup& shard) { return shard.device.text() == device.text(); };
    const ShardSetup& shard = *std::ranges::find_if(shards, is_here);
    const data::ResidentDataset& data = *shard.dataset;
    const std::vector<data::FieldSpec> fields = specs_of(data.train);
    const grow::HostFrame frame =
        frame_for(shard.options, fields[chosen_field(shard.options, fields)], data.num_classes());
    PopulationNeeds here{.options = shard.options,
                         .blueprints = shard.blueprints,
                         .data = {data.bytes(), data.residency, data.validation.num_samples()},
                         .device = data.device,
                         .ranks = shard.batch_world->size()};
    if (shard.shape)
      here.host = shard.shape->in(frame);
    else
      set_host(here, frame, shard.host);
    here.options.lanes = lanes;
    here.options.validation_batch =
        validation_batch(options_of_part(options, std::ssize(shards)), data.device.is_cuda());
    MemoryPlan plan = with_budget(job_parts(here, needs), data.device, options.device_memory);
    // It is there already.
    if (plan.budget_bytes > 0 && data.residency == data::Residency::kDevice)
      plan.budget_bytes += data.bytes();
    add(shard.dataset, std::move(plan));
  }
  for (const JobNeeds::Policy& policy : needs.policies) {
    const at::Device device = policy.options.device;
    const auto lives_there = [&](const DeviceStart& start) {
      return start.dataset && start.dataset->device == device;
    };
    if (std::ranges::any_of(starts, lives_there)) continue;
    MemoryPlan plan = policy_parts(policy.options, policy.use);
    plan.add(device_parts(device));
    add(nullptr, with_budget(std::move(plan), device, options.device_memory));
  }
  return starts;
}

}  // namespace espalier::train
