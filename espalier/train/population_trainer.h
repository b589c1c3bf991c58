// Trains a population epoch by epoch: steps, validation, counterfactuals, decisions, and what to do with a
// lane whose loss is not finite any more.
//
// Kept true: a lane's bits depend on (options, lane) alone, whatever the others do: growing, failing or
// retired; an epoch is queued as a whole and then read in one copy (epoch_buffer.h); time moves and decisions
// take effect between epochs; the test split is read by test() alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/data/iterator.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/grow/population.h"
#include "espalier/train/controller.h"
#include "espalier/train/epoch_buffer.h"
#include "espalier/train/epoch_record.h"
#include "espalier/train/evaluation.h"
#include "espalier/train/lane_snapshots.h"
#include "espalier/train/population_options.h"
#include "espalier/train/step_timing.h"
#include "espalier/train/train_step.h"

namespace espalier::train {

class StateArchive;

enum class OnFailure {
  kRollBack,  // to the last good state, at half the rate; retired after kMaxRollbacks
  kRetire,    // at once, and without a state to come back to: for lanes that begin anew before long
};

// What tests and benchmarks give instead of files and devices by name.
struct TrainerSetup {
  std::shared_ptr<const data::ResidentDataset> dataset;
  DeviceName device;
  grow::CnnHostOptions host;                         // lanes, image sizes and classes are filled in
  grow::BlueprintRegistry blueprints = {};           // also of a user's own
  std::shared_ptr<Controller> controller = nullptr;  // none: the one that the options name
  OnFailure on_failure = OnFailure::kRollBack;
  // Where several populations share a job: the environments that the lanes here are, and the device of every
  // environment of the job. Empty: this population is the job.
  std::vector<int64_t> envs = {};             // [lanes]
  std::vector<std::string> env_devices = {};  // [environments]
};

class PopulationTrainer {
 public:
  // A lane may fail this often before it is retired: by then its rate is an eighth.
  static constexpr int64_t kMaxRollbacks = 3;

  PopulationTrainer(const PopulationOptions& options, TrainerSetup setup);

  EpochRecord train_epoch(const Progress& progress = {});
  std::vector<LaneScore> test(const Progress& progress = {});

  // Called between two batches, wherever a checkpoint may be taken: all that the next batch depends on is
  // what visit_state() tells.
  void at_every_batch(std::function<void()> call) { at_batch_ = std::move(call); }
  // Everything, also in the middle of an epoch: what is loaded goes on as if it had never stopped. A
  // validation that was under way is done again.
  void visit_state(StateArchive& archive);

  // All lanes begin anew: first values of the seed, no optimiser state, no seeds; the next epoch is the
  // first, with the samples of data_epoch. Nothing is allocated and captured graphs stay.
  void begin_episode(uint64_t seed, int64_t data_epoch);

  // The parts of an epoch, for those who train several populations under one controller (joint_epoch.h), in
  // this order. Only settle_epoch() needs what was read.
  void begin_epoch(EpochBuffer& buffer);
  void queue_epoch(const Progress& progress);
  EpochRecord settle_epoch(const EpochBuffer::Sums& sums);
  // Of the lanes that have something to decide.
  std::vector<LaneReport> reports_of(const EpochRecord& record) const;
  // lane: here; record: its own.
  void act(int64_t lane, LaneRecord& record, const SeedAction& action);

  Telemetry telemetry() const;  // of the epoch under way

  const PopulationOptions& options() const { return options_; }
  const TrainerSetup& setup() const { return setup_; }
  int64_t env_of(int64_t lane) const { return setup_.host.lane_id(lane); }
  int64_t epochs_done() const { return epoch_; }
  int64_t num_retired() const { return std::ranges::count_if(lanes_, &Lane::is_retired); }
  int64_t steps_per_epoch() const { return train_.length(); }
  grow::Population& population() { return population_; }
  grow::Lifecycle& lifecycle() { return lifecycle_; }
  TrainStep& step() { return step_; }
  StepTiming& timing() { return timing_; }
  Evaluation& validation() { return validation_; }

 private:
  struct Lane {
    std::vector<double> accuracies;                      // of validation, epochs that counted
    std::vector<std::optional<double>> accuracy_before;  // [S] of validation, when TRAINING began
    double rate_factor = 1;
    int64_t num_rollbacks = 0;
    bool is_retired = false;
  };

  void begin_lanes();
  void visit_lanes(StateArchive& archive);
  void visit_networks(StateArchive& archive);
  void move_time();
  bool is_asked_about(int64_t slot) const;
  void measure_slots(EpochRecord& record, const EpochBuffer::Sums& sums) const;
  void settle_failures(EpochRecord& record);
  Evaluation::Tick tick_of(const Progress& progress, const std::string& title) const;

  PopulationOptions options_;
  TrainerSetup setup_;
  at::ScalarType compute_;
  size_t field_;
  data::GatherIterator train_;
  data::GatherIterator validate_;
  data::GatherIterator test_;
  grow::Population population_;
  grow::Lifecycle lifecycle_;
  TrainStep step_;
  Evaluation validation_;
  LaneSnapshots snapshots_;
  StepTiming timing_;
  std::vector<Lane> lanes_;
  int64_t epoch_ = 0;                    // trained so far, of the episode
  bool is_under_way_ = false;            // time has moved for the epoch after these
  int64_t batches_done_ = 0;             // of it
  int64_t first_data_epoch_ = 0;         // of the episode
  std::unique_ptr<EpochBuffer> buffer_;  // of train_epoch(); none before the first
  std::function<void()> at_batch_;       // may be empty
};

}  // namespace espalier::train
