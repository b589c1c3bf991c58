// The optimisers of a population: one per parameter group, since a stack of seeds has other entries than the
// host has lanes.
//
// Kept true: an optimiser is made when its group first appears and kept for good, so its state never moves
// and a captured step stays right; the state of a new seed begins at zero, whoever had its entry before, and
// so does that of a gate that comes into use. Its age in batches, by which its rate warms up, is part of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "espalier/grow/network_stack.h"
#include "espalier/lanes/optim/group_update.h"
#include "espalier/lanes/optim/optimizer.h"
#include "espalier/train/step/metrics.h"

namespace espalier::train {

// A group as it is now, with its optimiser.
struct OptimizedGroup {
  grow::ParameterGroup group;
  std::vector<lanes::LaneParameter*> parameters;
  lanes::LaneSGD* optimizer = nullptr;

  bool is_host() const { return group.slot < 0; }
  // Whether these are a seed's own parameters, not its gate's.
  bool is_seed() const { return !is_host() && !group.name.ends_with(".gate"); }
};

class LaneOptimizers {
 public:
  // seeds: of their own parameters and of their gates. metrics: where the norms of seeds are added up.
  LaneOptimizers(grow::NetworkStack& population, const lanes::LaneSgdOptions& hosts,
                 const lanes::LaneSgdOptions& seeds, const StepMetrics& metrics);

  // After NetworkStack::apply().
  void sync_groups(const grow::GrowthReport& report);

  const std::vector<OptimizedGroup>& groups() const { return groups_; }  // the host's first

  // All groups at once.
  lanes::GroupUpdate& update() { return update_; }
  const lanes::GroupUpdate& update() const { return update_; }

  // What is kept for a lane, without the lane axis: views. A lane in the same states has the same names.
  std::vector<NamedTensor> lane_state(int64_t lane) const;
  // As if the lane, or all of them, had never made a step.
  void reset_lane(int64_t lane);
  void reset_all();

 private:
  void reset(lanes::LaneSGD& optimizer, int64_t entry);
  void list_groups();

  grow::NetworkStack& population_;
  // A kind of groups: hosts, or seeds.
  struct Kind {
    lanes::LaneSgdOptions options;
    // What each lane has for itself: [L] f64 device.
    at::Tensor momentum_factors;
    at::Tensor weight_decays;
  };

  Kind hosts_;
  Kind seeds_;
  const StepMetrics& metrics_;
  std::map<std::string, std::unique_ptr<lanes::LaneSGD>> optimizers_;  // by the group's name
  std::vector<OptimizedGroup> groups_;
  lanes::GroupUpdate update_;
};

}  // namespace espalier::train
