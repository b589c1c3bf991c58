// Controllers that follow a recording (recording.h): what a policy's growth is worth apart from its seeing.
//
// "replay" plays a recorded schedule of actions on other networks than it was made for, blind to them.
// "static" begins with the seeds that a recorded network ended with, and never changes anything.
//
// Kept true: both keep to the slots, the number of seeds and the masks that every controller keeps to; an
// action that is not possible where it is replayed becomes WAIT and is counted. What a network does depends
// on (recording, round, lane) and, under replay, on its own slots.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/train/control/controller.h"
#include "espalier/train/control/recording.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

// Where a recording is followed.
struct RecordedOptions {
  std::string name;                     // how messages call it: "--controllers replay:FILE"
  std::vector<std::string> slots;       // the host's, by action index
  std::vector<std::string> blueprints;  // all, by number
  int64_t lanes = 1;
  GrowthLimits limits;
};

// Network l of episode e plays what network l did in the recording's episode e + 1, the last one what it did
// in the first; with a single episode, network l plays what l + 1 did. So where the recording's own episodes
// are played again, no network repeats itself.
class ReplayController final : public Controller {
 public:
  // Refuses a recording of other slots, or of blueprints that there are none of.
  ReplayController(Recording recording, const RecordedOptions& options);

  void begin_episode(int64_t round) override;
  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override;
  std::vector<int64_t> num_illegal() const override { return illegal_; }

  void visit_state(run::StateArchive& archive);

 private:
  const RecordedNetwork& network_for(int64_t lane) const;

  Recording recording_;  // its actions name slots and blueprints by the job's numbers
  RecordedOptions options_;
  int64_t round_ = 0;
  std::vector<int64_t> illegal_;  // [L] in the episode so far
};

// Network l of episode e begins with the seeds that network l of the recording's episode e ended with, at the
// amplitude and with the operator that they ended with, and first values of its own.
class StaticController final : public Controller {
 public:
  // Refuses what ReplayController does, and networks with more seeds, or seeds elsewhere, than the limits
  // allow.
  StaticController(Recording recording, const RecordedOptions& options);

  std::vector<std::vector<SlotState>> first_states(int64_t round) const override;
  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override;

 private:
  Recording recording_;
  RecordedOptions options_;
};

}  // namespace espalier::train
