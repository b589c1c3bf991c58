// Trains a population epoch by epoch: steps, validation, counterfactuals, decisions, and what to do with a
// lane whose loss is not finite any more.
//
// Kept true: a lane's bits depend on (options, lane) alone, whatever the others do: growing, failing or
// retired; time moves and decisions fall between epochs, from plain values of the host; the test split is
// read by test() alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/data/iterator.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/grow/population.h"
#include "espalier/train/controller.h"
#include "espalier/train/epoch_record.h"
#include "espalier/train/evaluation.h"
#include "espalier/train/lane_snapshots.h"
#include "espalier/train/population_options.h"
#include "espalier/train/train_step.h"

namespace espalier::train {

// What tests and benchmarks give instead of files and devices by name.
struct TrainerSetup {
  std::shared_ptr<const data::ResidentDataset> dataset;
  DeviceName device;
  grow::CnnHostOptions host;                         // lanes, image sizes and classes are filled in
  grow::BlueprintRegistry blueprints = {};           // also of a user's own
  std::shared_ptr<Controller> controller = nullptr;  // none: the one that the options name
};

class PopulationTrainer {
 public:
  // A lane may fail this often before it is retired: by then its rate is an eighth.
  static constexpr int64_t kMaxRollbacks = 3;

  PopulationTrainer(const PopulationOptions& options, TrainerSetup setup);

  EpochRecord train_epoch(const Progress& progress = {});
  std::vector<LaneScore> test(const Progress& progress = {});

  int64_t epochs_done() const { return epoch_; }
  int64_t steps_per_epoch() const { return train_.length(); }
  grow::Population& population() { return population_; }
  grow::Lifecycle& lifecycle() { return lifecycle_; }
  TrainStep& step() { return step_; }
  Evaluation& validation() { return validation_; }

 private:
  struct Lane {
    std::vector<double> accuracies;                      // of validation, epochs that counted
    std::vector<std::optional<double>> accuracy_before;  // [S] of validation, when TRAINING began
    double rate_factor = 1;
    int64_t num_rollbacks = 0;
    bool is_retired = false;
  };

  void begin_epoch();
  LaneReport report_of(const LaneRecord& record) const;
  void measure_slots(EpochRecord& record, const Progress& progress);
  void settle_failures(EpochRecord& record);
  void decide(EpochRecord& record);
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
  std::vector<Lane> lanes_;
  int64_t epoch_ = 0;  // trained so far
};

}  // namespace espalier::train
