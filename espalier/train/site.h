// A device of a job with many networks: what its population is told, its data, and what it takes there.
//
// Kept true: network e lives at site e mod D. A device may be named twice: its sites share the data and the
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "espalier/core/device_name.h"
#include "espalier/core/progress.h"
#include "espalier/train/memory_plan.h"
#include "espalier/train/population_options.h"
#include "espalier/train/population_trainer.h"

namespace espalier::train {

struct Site {
  PopulationOptions options;  // lanes: of the whole job
  TrainerSetup setup;         // which of the lanes live here is filled in by who makes the population
};

// --devices as devices of this machine; a name that is none is refused, and more of them than networks.
std::vector<DeviceName> devices_of(const PopulationOptions& options);

// Reads the data onto the device.
Site site_on(const DeviceName& device, const PopulationOptions& options, const Progress& progress);

struct DeviceLanes {
  DeviceName device;
  int64_t lanes = 0;
};
// Each device once, with all lanes that live there.
std::vector<DeviceLanes> lanes_by_device(const PopulationOptions& options);

enum class Growth { kNone, kSeeds };

// What is on one of the devices before the first epoch, and what all of its lanes will take there.
struct DeviceStart {
  std::shared_ptr<const data::ResidentDataset> dataset;
  MemoryPlan plan;
};

// Before any population is made, each device once: fails where what lives there does not fit.
std::vector<DeviceStart> check_devices(const PopulationOptions& options, std::span<const Site> sites,
                                       Growth growth);

}  // namespace espalier::train
