// Trains a multi-stream network epoch by epoch: steps, validation, the best state kept, streams that stopped
// improving frozen, and a run that did stopped.
//
// Kept true: the run is a function of its options and data; decisions use the validation split (the training
// split's own scores where nothing is set aside); the test split is read by test() alone. Several ranks train
// one network, each on its part of every batch: all of them have the same weights, scores and decisions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/data/iterator.h"
#include "espalier/linet/network.h"
#include "espalier/linet/stream_monitor.h"
#include "espalier/ranks/world.h"
#include "espalier/tensor/captured_graphs.h"
#include "espalier/train/linet/config.h"
#include "espalier/train/linet/evaluation.h"
#include "espalier/train/linet/step.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

struct LinetEpoch {
  int64_t epoch = 0;  // from 1
  LinetMetrics trained;
  LinetScore validated;         // all zero where nothing is set aside
  bool is_best = false;         // the best so far, by accuracy
  bool is_last = false;         // patience is at its end, or every stream is frozen and that ends the run
  bool are_all_frozen = false;  // the streams
  std::vector<int64_t> frozen;  // streams, from this epoch on
  GraphWork graphs;
  int64_t bytes_between_ranks = 0;  // that this rank sent and received
  double seconds = 0;
};

// What a stream is worth to the network.
struct LinetTest {
  LinetScore whole;
  std::vector<double> accuracy_without;  // [S] with the stream zeroed
};

// The best accuracy so far and how long ago it was: of the network, or of a stream's own head.
struct BestSoFar {
  double accuracy = -1;
  int64_t epochs_since = 0;
  bool is_frozen = false;  // a stream's
  bool is_kept = false;    // the trainer has what goes back into a stream while it is frozen

  // A stream's, before its first epoch.
  static BestSoFar for_stream(linet::LinetRules rules);

  // An epoch's accuracy; whether it is better, by more than a margin.
  bool takes(double now, double margin = 0);
  bool takes_stream(double now, linet::LinetRules rules);
  // Whether a stream went without a better one for so long that it is frozen.
  bool is_out_of_patience(int64_t patience, linet::LinetRules rules) const;
};

class LinetTrainer {
 public:
  LinetTrainer(const LinetConfig& options, std::shared_ptr<const data::ResidentDataset> dataset,
               const DeviceName& device, ranks::World& world = ranks::World::alone());

  LinetEpoch train_epoch(const Progress& progress = {});
  int64_t epochs_done() const { return epoch_; }
  // All epochs are done, no patience is left, or, by the original's rules, every stream is frozen.
  bool is_over() const;

  // As Shard's.
  void at_every_batch(std::function<void()> call) { at_batch_ = std::move(call); }
  void visit_state(run::StateArchive& archive);
  LinetTest test(const Progress& progress = {});
  // Network and heads become those of rank 0.
  void share_network();

  linet::Linet& net() { return *net_; }
  linet::StreamMonitor* monitor() { return monitor_.get(); }
  LinetStep& step() { return *step_; }
  int64_t steps_per_epoch() const { return train_.length() / world_.size(); }
  const std::vector<std::string>& stream_names() const { return names_; }
  at::ScalarType compute() const { return compute_; }

 private:
  std::unique_ptr<LinetEvaluation> evaluation(const data::GatherIterator& split, Graphs graphs);
  void close_epoch(LinetEpoch& epoch);
  void freeze_streams(LinetEpoch& epoch);
  bool are_all_frozen() const { return std::ranges::all_of(stream_best_, &BestSoFar::is_frozen); }
  bool has_ended_early() const;
  // What of a stream stays as it was kept while the stream is frozen, by name; views.
  std::map<std::string, at::Tensor> frozen_part(size_t stream);
  void keep(size_t stream);
  void put_back(size_t stream);

  ranks::World& world_;
  LinetConfig options_;
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
  int64_t batches_done_ = 0;   // in it
  std::function<void()> at_batch_;
  BestSoFar best_;
  std::vector<BestSoFar> stream_best_;  // [S] of every stream's own head
  // [S]: of every stream its frozen_part() as it was in its best epoch (the original's rules), or when it was
  // frozen (ours); on the device.
  std::vector<std::map<std::string, at::Tensor>> kept_;
};

// The options with what they leave to the rules filled in; refuses what the rules do not have, and lists that
// name a stream twice. All that can be told before data is loaded.
LinetConfig checked_options(LinetConfig options);

// As rank `world.rank()` of a job is placed: where no device is named, the ranks of a machine take its GPUs
// in turn.
LinetConfig placed(LinetConfig options, const ranks::World& world);
// With the part of a batch that a rank has: --batch is the whole one, and must divide by the ranks.
LinetConfig options_of_rank(LinetConfig options, const ranks::World& world);

// Fields of the data by the names that the options give; all of them where they give none.
std::vector<size_t> stream_fields(const LinetConfig& options, const std::vector<data::FieldSpec>& fields);

// The network that a job with this data trains.
linet::LinetShape linet_shape(const LinetConfig& options, const std::vector<data::FieldSpec>& fields,
                              int64_t num_classes, at::Device device);

}  // namespace espalier::train
