#include "espalier/train/site.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/list_text.h"
#include "espalier/data/cache.h"
#include "espalier/train/population_memory.h"
#include "espalier/train/population_setup.h"

namespace espalier::train {

std::vector<DeviceName> devices_of(const PopulationOptions& options) {
  std::vector<DeviceName> devices;
  for (const std::string& name : split_list(options.devices)) devices.push_back(data::choose_device(name));
  if (std::ssize(devices) > options.lanes)
    fail_usage("--devices {}: want at most one a network, {} {}", options.devices, options.lanes_flag,
               options.lanes);
  return devices;
}

Site site_on(const DeviceName& device, const PopulationOptions& options, const Progress& progress) {
  const auto dataset =
      data::DatasetCache::instance().ensure(options.source, options.resident, device, progress);
  const std::vector<data::FieldSpec> specs = specs_of(dataset->train);
  const data::FieldSpec& field = specs[chosen_field(options, specs)];
  return {
      .options = options,
      .setup = {
          .dataset = dataset, .device = device, .host = host_for(options, field, dataset->num_classes())}};
}

std::vector<DeviceLanes> lanes_by_device(const PopulationOptions& options) {
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

std::vector<DeviceStart> check_devices(const PopulationOptions& options, std::span<const Site> sites,
                                       Growth growth) {
  std::vector<DeviceStart> starts;
  for (const auto& [device, lanes] : lanes_by_device(options)) {
    const auto is_here = [&](const Site& site) { return site.setup.device.text() == device.text(); };
    const Site& site = *std::ranges::find_if(sites, is_here);
    PopulationOptions here = site.options;
    here.lanes = lanes;
    here.controller = growth == Growth::kSeeds ? "random" : "none";
    const data::ResidentDataset& data = *site.setup.dataset;
    const std::vector<data::FieldSpec> specs = specs_of(data.train);
    const int64_t on_device = data.residency == data::Residency::kDevice ? data.bytes() : 0;
    MemoryPlan plan = with_budget(
        population_parts(here, on_device, specs[chosen_field(here, specs)], data.num_classes(), data.device),
        data.device, options.device_memory);
    if (plan.budget_bytes > 0) plan.budget_bytes += on_device;  // it is there already
    check_fits(plan, fmt::format("lower {} or {}, add to --devices {}, or use --residency host",
                                 options.lanes_flag, options.batch_flag, options.devices));
    starts.push_back({site.setup.dataset, std::move(plan)});
  }
  return starts;
}

}  // namespace espalier::train
