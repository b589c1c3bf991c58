// One training step of all lanes: gather, forward, loss, backward, clip, update, and the sums that an epoch
// reports.
//
// Kept true:
// - Nothing is read on the host and nothing the host holds changes from step to step: batch, learning rate,
//   loss scale and sums come from tensors on the device. So the step can be captured and replayed, and does
//   there what it does eagerly.
// - Lanes never mix: a lane whose loss or gradients are not finite is not updated and is flagged; the others
//   do not notice. The host and every seed are clipped by their own norms, so a seed in TRAINING leaves the
//   host's update as it is.
// - Where several processes share every batch out, all that a step changes is the same bits at each of them
//   after it: gradients, running statistics, sums and the losses that decide whether a step counts are added
//   up over all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "espalier/data/delivery.h"
#include "espalier/data/gather.h"
#include "espalier/grow/network_stack.h"
#include "espalier/lanes/optim/optimizer.h"
#include "espalier/ranks/world.h"
#include "espalier/tensor/captured_graphs.h"
#include "espalier/tensor/layout.h"
#include "espalier/train/step/gradient_exchange.h"
#include "espalier/train/step/learning_rate.h"
#include "espalier/train/step/loss_scale.h"
#include "espalier/train/step/metrics.h"
#include "espalier/train/step/optimizers.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

// A run is num_epochs epochs of batches_per_epoch batches each, between which decisions are made. Batch b of
// it, whichever epoch it is in, has the samples of batch b mod batches_per_pass in a pass over the data, and
// the rate that the schedule has there: neither depends on how the run is cut into epochs.
struct TrainStepOptions {
  lanes::LaneSgdOptions optimizer;  // for hosts; learning_rate: the peak
  // learning_rate: its own is not read, a seed has its lane's; curve: from its peak, over the batches that a
  // seed has, else with its lane's schedule.
  lanes::LaneSgdOptions seeds;
  RateCurve schedule = RateCurve::kLinear;
  double warm_up = 0.2;  // share of the run
  int64_t batches_per_epoch = 1;
  int64_t batches_per_pass = 1;
  int64_t num_epochs = 1;
  double label_smoothing = 0;
  double clip_norm = 0;                 // for a lane's host, and for each seed; 0: none
  at::ScalarType compute = at::kFloat;  // f16 brings a loss scale
  MemoryFormat format = MemoryFormat::kChannelsLast;
  StepGraphs::Options graphs;
  // Who shares every batch out; no graphs where they are several, and nothing grows.
  ranks::World* world = &ranks::World::alone();
  bool sync_norm = false;  // statistics are of the whole batch, not of this rank's part
};

class TrainStep {
 public:
  // call: GatherIterator::gather_call() for the population's lanes; field: which of the data's.
  TrainStep(grow::NetworkStack& population, data::GatherCall call, size_t field,
            const TrainStepOptions& options);

  // Between epochs: clears the sums, goes to the epoch's first batch and to its place in the schedule. Passes
  // over the data, whose number chooses the order of samples and their augmentation, count from first_pass.
  void begin_epoch(int64_t epoch, int64_t first_pass = 0);
  // After NetworkStack::reset(): no optimiser remembers anything, and every lane is trained at its full
  // rate.
  void reset();
  // Between epochs, after NetworkStack::apply().
  void sync_groups(const grow::GrowthReport& report);

  // One step, replayed where graphs are on.
  void run();
  // The same without a graph.
  void run_eagerly();

  // Milliseconds that a step takes: the median of a few, after some that warm up. Between epochs. Trains
  // nothing: what they change is put back.
  double measure_ms();

  // Sums since begin_epoch(), on the device, and the steps that they are of.
  const at::Tensor& sums() const { return metrics_.sums(); }
  int64_t steps_done() const { return steps_done_; }
  // The means, by a copy of their own.
  std::vector<LaneMetrics> metrics() const { return metrics_.read(steps_done_); }

  // Between epochs: what one lane's rate is multiplied with, and lanes that are not trained any more.
  void set_rate_factor(int64_t lane, double factor);
  void freeze(int64_t lane);

  at::Device device() const { return batch_.device(); }
  LaneOptimizers& optimizers() { return optimizers_; }
  const data::BatchDelivery& batch() const { return batch_; }  // the last one
  const StepGraphs& graphs() const { return graphs_; }
  const TrainStepOptions& options() const { return options_; }
  const RateSchedule& schedule() const { return schedule_; }
  at::Tensor learning_rates() const;  // [L] f32 device: of the step that comes

  // Every tensor that a step changes and a later one reads: to be put back after steps that only measure.
  std::vector<at::Tensor> state();
  // All that a checkpoint needs besides the population's values and the optimisers' state.
  void visit_state(run::StateArchive& archive);

 private:
  std::string key() const;  // all that a captured step depends on
  at::Tensor gradients();   // writes those of the batch that was delivered; returns the losses, [L]
  void update(const at::Tensor& losses);

  grow::NetworkStack& population_;
  TrainStepOptions options_;
  RateSchedule schedule_;
  data::BatchDelivery batch_;
  StepMetrics metrics_;
  LaneOptimizers optimizers_;
  std::optional<LossScale> loss_scale_;         // for f16
  at::Tensor peak_rates_;                       // [L] f32
  at::Tensor clip_norms_;                       // [L] f64
  at::Tensor label_smoothing_;                  // [L] f64
  at::Tensor loss_weights_;                     // [L] f32: 1, or the part that this process has of a batch
  at::Tensor is_active_;                        // [L] bool
  at::Tensor step_;                             // [1] f64: the batch of the whole run, from 0
  std::unique_ptr<GradientExchange> exchange_;  // none: one rank
  int64_t steps_done_ = 0;
  StepGraphs graphs_;  // last: its graphs are gone before what they write to
};

}  // namespace espalier::train
