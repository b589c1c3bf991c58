// The optimisers of a population: one a parameter group, since a stack of seeds has other entries than the
// host has lanes.
//
// Kept true: an optimiser is made when its group first appears and kept for good, so its state never moves
// and a captured step stays right; the state of a new seed begins at zero, whoever had its entry before, and
// so does that of a gate that comes into use.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "espalier/grow/population.h"
#include "espalier/lanes/lane_optim.h"

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
  LaneOptimizers(grow::Population& population, const lanes::LaneSgdOptions& options);

  // After Population::apply().
  void follow(const grow::GrowthReport& report);

  const std::vector<OptimizedGroup>& groups() const { return groups_; }  // the host's first

  // What is kept for a lane, without the lane axis: views. A lane in the same states has the same names.
  std::vector<grow::NamedTensor> lane_state(int64_t lane) const;
  // As if the lane, or all of them, had never made a step.
  void reset_lane(int64_t lane);
  void reset_all();

 private:
  void reset(lanes::LaneSGD& optimizer, int64_t entry);

  grow::Population& population_;
  lanes::LaneSgdOptions options_;
  std::map<std::string, std::unique_ptr<lanes::LaneSGD>> optimizers_;  // by the group's name
  std::vector<OptimizedGroup> groups_;
};

}  // namespace espalier::train
