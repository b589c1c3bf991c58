// Trains a multi-stream network epoch by epoch: steps, validation, the best state kept, streams that stopped
// improving frozen, and a run that did stopped.
//
// Kept true: the run is a function of its options and data; decisions use the validation split (the training
// split's own scores where nothing is set aside); the test split is read by test() alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/data/iterator.h"
#include "espalier/linet/linet.h"
#include "espalier/linet/stream_monitor.h"
#include "espalier/train/linet_evaluation.h"
#include "espalier/train/linet_options.h"
#include "espalier/train/linet_step.h"

namespace espalier::train {

class StateArchive;

struct LinetEpoch {
  int64_t epoch = 0;  // from 1
  LinetMetrics trained;
  LinetScore validated;         // all zero where nothing is set aside
  bool is_best = false;         // the best so far, by accuracy
  bool is_last = false;         // patience is at its end
  std::vector<int64_t> frozen;  // streams, from this epoch on
  int64_t num_captures = 0;
  double capture_seconds = 0;
  double seconds = 0;
};

// What a stream is worth to the network.
struct LinetTest {
  LinetScore whole;
  std::vector<double> accuracy_without;  // [S] with the stream zeroed
};

class LinetTrainer {
 public:
  LinetTrainer(const LinetOptions& options, std::shared_ptr<const data::ResidentDataset> dataset,
               const DeviceName& device);

  LinetEpoch train_epoch(const Progress& progress = {});
  int64_t epochs_done() const { return epoch_; }
  bool is_over() const;  // all epochs, or no patience left

  // As PopulationTrainer's.
  void at_every_batch(std::function<void()> call) { at_batch_ = std::move(call); }
  void visit_state(StateArchive& archive);
  LinetTest test(const Progress& progress = {});

  linet::Linet& net() { return *net_; }
  linet::StreamMonitor* monitor() { return monitor_.get(); }
  LinetStep& step() { return *step_; }
  int64_t steps_per_epoch() const { return train_.length(); }
  const std::vector<std::string>& stream_names() const { return names_; }
  at::ScalarType compute() const { return compute_; }

 private:
  std::unique_ptr<LinetEvaluation> evaluation(const data::GatherIterator& split, Graphs graphs);
  void settle(LinetEpoch& epoch);
  std::map<std::string, at::Tensor> running_statistics(size_t stream);  // views, by name

  LinetOptions options_;
  std::shared_ptr<const data::ResidentDataset> dataset_;
  at::ScalarType compute_;
  std::vector<size_t> fields_;      // [S]
  std::vector<std::string> names_;  // [S]
  data::GatherIterator train_;
  data::GatherIterator validate_;
  data::GatherIterator test_;
  std::unique_ptr<linet::Linet> net_;
  std::unique_ptr<linet::StreamMonitor> monitor_;
  std::unique_ptr<LinetStep> step_;
  std::unique_ptr<LinetEvaluation> validation_;
  int64_t epoch_ = 0;          // trained so far
  bool is_under_way_ = false;  // the epoch after these has begun
  int64_t batches_done_ = 0;   // of it
  std::function<void()> at_batch_;
  // The best so far and how long ago: of the network, and of every stream's own head.
  struct Best {
    double accuracy = -1;
    int64_t epochs_since = 0;
    bool is_frozen = false;
  };
  Best best_;
  std::vector<Best> stream_best_;                        // [S]
  std::map<std::string, at::Tensor> frozen_statistics_;  // of frozen streams, as they were then
};

// Fields of the data by the names that the options give; all of them where they give none.
std::vector<size_t> stream_fields(const LinetOptions& options, const std::vector<data::FieldSpec>& fields);

// What the option says; auto is resolved by the device.
at::ScalarType compute_type(const std::string& amp, at::Device device);

// The network that a job with this data trains.
linet::LinetShape linet_shape(const LinetOptions& options, const std::vector<data::FieldSpec>& fields,
                              int64_t num_classes, at::Device device);

}  // namespace espalier::train
