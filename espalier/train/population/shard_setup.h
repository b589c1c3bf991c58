// From a job's devices to its shards: which lanes live where, their data, and whether what lives there fits.
//
// Kept true: network e lives at shard e mod D. A device may be named twice: its shards share the data and the
// memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "espalier/core/machine/device_name.h"
#include "espalier/core/progress.h"
#include "espalier/ranks/world.h"
#include "espalier/train/memory/plan.h"
#include "espalier/train/memory/policy.h"
#include "espalier/train/memory/population.h"
#include "espalier/train/population/config.h"
#include "espalier/train/population/shard.h"

namespace espalier::train {

// The devices asked for, on this machine or not; where none are, the first GPU or the CPU. Refuses more of
// them than networks.
std::vector<DeviceName> devices_of(const PopulationConfig& options);

// The same as torch knows them; one that this machine does not have is refused.
std::vector<c10::Device> torch_devices_of(const PopulationConfig& options);

// As rank `world.rank()` of a job is placed: where no devices are named, the ranks of a machine take its GPUs
// in turn.
PopulationConfig placed(PopulationConfig options, const ranks::World& world);
// With those of the lanes that one of so many ranks or shards has at most.
PopulationConfig options_of_part(PopulationConfig options, int64_t num_parts);
PopulationConfig options_of_rank(PopulationConfig options, const ranks::World& world);

// Reads the data onto the device.
ShardSetup shard_on(const DeviceName& device, const PopulationConfig& options, const Progress& progress);

struct DeviceLanes {
  DeviceName device;
  int64_t lanes = 0;
};
// Each device once, with all lanes that live there.
std::vector<DeviceLanes> lanes_by_device(const PopulationConfig& options);

// What a job has on its devices besides bare hosts.
struct JobNeeds {
  std::optional<GrowthLimits> growth = {};  // none: nothing is ever planted
  OnFailure on_failure = OnFailure::kRollBack;
  struct Policy {
    PolicyOptions options;
    PolicyUse use = PolicyUse::kLearns;
  };
  std::vector<Policy> policies = {};
};

// What is on one of the devices before the first epoch, and what all of its lanes will take there.
struct DeviceStart {
  std::shared_ptr<const data::ResidentDataset> dataset;
  MemoryPlan plan;
};

// What `espalier train population` needs: rules plant wherever and as often as they like.
JobNeeds needs_of(const PopulationConfig& options);

// What the job takes on one of its devices: the networks that live there, and policies whose device it is.
// here: of the population there. Without CUDA's own part and the budget.
MemoryPlan job_parts(const PopulationNeeds& here, const JobNeeds& needs);

// Before any population is made, each device once: fails where what lives there does not fit. A device that
// has policies alone comes last, without a dataset.
std::vector<DeviceStart> check_devices(const PopulationConfig& options, std::span<const ShardSetup> shards,
                                       const JobNeeds& needs);

}  // namespace espalier::train
