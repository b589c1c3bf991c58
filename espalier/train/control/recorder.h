// Writes down what a controller does in the episodes of a job (recording.h).
#pragma once

#include <string>

#include "espalier/grow/network_stack.h"
#include "espalier/train/control/recording.h"
#include "espalier/train/population/config.h"
#include "espalier/train/population/epoch_record.h"

namespace espalier::train {

class Recorder {
 public:
  Recorder(const std::string& controller, const PopulationConfig& options,
           const grow::NetworkStack& population);
  // Goes on after the episodes that are in it.
  explicit Recorder(Recording so_far);

  void add_step(const EpochRecord& epoch);    // after every epoch of an episode
  void end_episode(const EpochRecord& last);  // after the last of them
  const Recording& recording() const { return recording_; }

 private:
  Recording recording_;
  std::vector<RecordedNetwork> playing_;  // [L]: the episode under way
};

}  // namespace espalier::train
