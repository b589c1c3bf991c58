// The last good state of every lane, on the device: parameters, running statistics, optimiser state, seeds
// and their stages.
//
// Kept true: taking or restoring one lane leaves the others' bits; a restored lane has the bits it had.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "espalier/grow/lifecycle.h"
#include "espalier/grow/network_stack.h"
#include "espalier/train/step/step.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

class LaneSnapshots {
 public:
  LaneSnapshots(grow::NetworkStack& population, TrainStep& step, grow::Lifecycle& lifecycle);

  // For lanes whose seeds are planted as the lifecycle says.
  void take(std::span<const int64_t> lanes);
  // Stages, seeds, values: all as when it was taken. The population is applied to.
  void restore(int64_t lane);
  // Values alone, of a lane whose seeds stand as they stood then.
  void restore_values(int64_t lane);

  int64_t bytes() const;
  void visit_state(run::StateArchive& archive);

 private:
  struct Snapshot {
    std::vector<SlotState> states;
    std::vector<NamedTensor> values;
  };

  std::vector<NamedTensor> values_of(int64_t lane) const;  // views

  grow::NetworkStack& population_;
  TrainStep& step_;
  grow::Lifecycle& lifecycle_;
  std::vector<Snapshot> snapshots_;  // [L]
};

}  // namespace espalier::train
