// The lanes of one device and one host shape: one stacked network, one captured step. Steps, validation,
// counterfactuals, and what to do with a lane that collapsed.
//
// Kept true: a lane's bits depend on (options, lane) alone, whatever the others do: growing, failing or
// retired; an epoch is queued as a whole, and what it came to is read by PopulationTrainer, in one copy for
// all shards; time moves and decisions take effect between epochs; the test split is read by test() alone.
// Ranks that share batches out have the same bits after every batch and every validation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/data/iterator.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/grow/network_stack.h"
#include "espalier/ranks/world.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/population/config.h"
#include "espalier/train/population/epoch_buffer.h"
#include "espalier/train/population/epoch_reading.h"
#include "espalier/train/population/epoch_record.h"
#include "espalier/train/step/evaluation.h"
#include "espalier/train/step/snapshots.h"
#include "espalier/train/step/step.h"
#include "espalier/train/step/timing.h"

namespace espalier::run {
class StateArchive;
}
namespace espalier::grow {
struct GrownNetwork;
}

namespace espalier::train {

enum class OnFailure {
  kRollBack,  // to the last good state, and on from there, more carefully
  kRetire,    // at once, and without a state to come back to: for lanes that start over before long
};

// What a shard is made of.
struct ShardSetup {
  // lanes: those of the whole job until PopulationTrainer deals them out; batch: this rank's part of it.
  PopulationConfig options;
  std::shared_ptr<const data::ResidentDataset> dataset;
  DeviceName device;
  // The ranks that share every batch out, each with the same lanes.
  ranks::World* batch_world = &ranks::World::alone();
  grow::HostMaker host = nullptr;  // none: the one that the options name
  std::optional<grow::CnnHostOptions> shape =
      {};  // that the memory plan assumes for `host`; none: `host` is not planned
  grow::BlueprintRegistry blueprints = {};  // also those of a user's own
  OnFailure on_failure = OnFailure::kRollBack;
  // The networks of the job that the lanes here are, and the device of every network of the job. Empty: the
  // lanes here are all there are.
  std::vector<int64_t> envs = {};             // [lanes]
  std::vector<std::string> env_devices = {};  // [networks of the job]
  grow::HostFrame frame = {};                 // filled in from the options and the data
};

class Shard {
 public:
  // A lane's rate is halved this often. If its numbers are not finite even then, it is retired; a finite
  // collapse goes back to the last good state as often as it comes.
  static constexpr int64_t kMaxHalvings = 3;
  // So many times in a row with nothing left to change: what it goes back to cannot be what it is compared
  // with, and it is compared anew.
  static constexpr int64_t kMaxFutile = 2;

  explicit Shard(ShardSetup setup);

  std::vector<LaneScore> test(const Progress& progress = {});

  // Everything, also in the middle of an epoch: what is loaded goes on as if it had never stopped. A
  // validation that was under way is done again.
  void visit_state(run::StateArchive& archive);

  // All lanes start over: first values of the seed, no optimiser state, no seeds; the next epoch is the
  // first, and its passes over the data are those from first_pass on. Nothing is allocated and captured
  // graphs stay.
  void begin_episode(uint64_t seed, int64_t first_pass);

  // Every lane begins as a network that grew elsewhere, [lanes], its seeds at their stages. Before the first
  // epoch.
  void begin_as(const std::vector<grow::GrownNetwork>& networks);

  // Every lane begins with seeds where these stand, [lanes][S], of first values of its own. Before the first
  // epoch.
  void begin_with(const std::vector<std::vector<SlotState>>& states);

  // The parts of an epoch, in this order (PopulationTrainer::train_epoch()). Only finish_epoch() needs what
  // was read.
  void begin_epoch(EpochBuffer& buffer);
  void begin_training();
  bool has_batches_left() const { return batches_done() < batches_per_epoch(); }  // step().run() does one
  void queue_validation(const Progress& progress);               // where the epoch is validated
  EpochRecord finish_epoch(std::span<const LaneReadings> read);  // its lanes'
  // Only for lanes that have something to decide.
  std::vector<LaneReport> reports_of(const EpochRecord& record) const;
  // lane: here; record: its own.
  void act(int64_t lane, LaneRecord& record, const SeedAction& action);

  Telemetry telemetry() const;  // for the epoch under way

  GraphWork graph_work() const;  // its steps' and its validation's so far

  const PopulationConfig& options() const { return setup_.options; }
  const ShardSetup& setup() const { return setup_; }
  int64_t env_of(int64_t lane) const { return setup_.frame.lane_id(lane); }
  int64_t epochs_done() const { return epoch_; }
  // Whether the epoch under way is: every N-th, and the last.
  bool is_validated() const {
    return (epoch_ + 1) % options().validate_every == 0 || epoch_ + 1 >= options().epochs;
  }
  // The part of the validation split that the epoch under way is scored on.
  SplitPart scored_part() const;
  // Samples of every lane in it; 0 where it is not validated.
  int64_t num_scored() const;
  int64_t batches_done() const { return step_.steps_done(); }  // in the epoch under way
  std::string title() const;                                   // "epoch 3/10": the one under way
  int64_t num_retired() const { return std::ranges::count_if(lanes_, &Lane::is_retired); }
  // Between two decisions; a pass over the data unless the options say otherwise.
  int64_t batches_per_epoch() const {
    return options().batches_per_step > 0 ? options().batches_per_step : batches_per_pass();
  }
  // Samples of every lane that are scored at a time: the split shared out evenly (scored_batch()).
  int64_t validation_batch() const { return validate_.plan().options().batch_size_per_env; }
  int64_t batches_per_pass() const { return train_.length() / setup_.batch_world->size(); }
  grow::NetworkStack& population() { return population_; }
  grow::Lifecycle& lifecycle() { return lifecycle_; }
  TrainStep& step() { return step_; }
  StepTiming& timing() { return timing_; }
  Evaluation& validation() { return validation_; }
  const LaneSnapshots& snapshots() const { return snapshots_; }

 private:
  struct Lane {
    std::vector<double> accuracies;  // on validation, where it was measured and counted
    // Of the last good state, as it was measured last; NaN: never, or not since it lost a felt seed.
    double good_accuracy = std::numeric_limits<double>::quiet_NaN();
    std::vector<std::optional<double>> accuracy_before;  // [S] of validation, when TRAINING began
    double rate_factor = 1;
    int64_t num_halvings = 0;
    int64_t num_rollbacks = 0;
    int64_t num_futile = 0;   // roll-backs in a row that changed nothing
    int64_t num_doubted = 0;  // of `accuracies`, the last: by doubtful epochs since the last good state
    bool is_retired = false;
  };

  void begin_lanes();
  void visit_lanes(run::StateArchive& archive);
  void visit_networks(run::StateArchive& archive);
  void move_time();
  bool is_asked_about(int64_t slot) const;
  bool keeps_room() const;
  std::vector<SlotReport> slots_of(int64_t lane, const LaneReadings& read) const;
  void handle_failures(EpochRecord& record);
  void roll_back(int64_t lane, LaneRecord& record);
  void retire(int64_t lane, LaneRecord& record);
  Evaluation::Tick tick_of(const Progress& progress, const std::string& title) const;

  ShardSetup setup_;
  at::ScalarType compute_;
  size_t field_;
  data::GatherIterator train_;
  data::GatherIterator validate_;
  data::GatherIterator test_;
  grow::NetworkStack population_;
  grow::Lifecycle lifecycle_;
  TrainStep step_;
  Evaluation validation_;
  LaneSnapshots snapshots_;
  StepTiming timing_;
  std::vector<Lane> lanes_;
  int64_t epoch_ = 0;          // trained so far, of the episode
  bool is_under_way_ = false;  // time has moved for the epoch after these
  int64_t first_pass_ = 0;     // over the data, where the episode begins
};

}  // namespace espalier::train
