// One training step of a multi-stream network: gather, blank, forward, losses, backward, clip, update, and
// the sums that an epoch reports.
//
// Kept true: nothing is read on the host, and nothing that the host holds changes from step to step, so the
// step can be captured and replayed; a step whose loss or gradients are not finite moves nothing and is
// counted; the streams' monitors never move the network. Where several processes share the batch out, all
// that a step changes is the same bits at each of them after it: gradients, running statistics and sums are
// added up over all, and what is drawn belongs to a sample of the whole batch, not to the process that has
// it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "espalier/data/delivery.h"
#include "espalier/lanes/optim/optimizer.h"
#include "espalier/linet/blanking.h"
#include "espalier/linet/network.h"
#include "espalier/linet/rules.h"
#include "espalier/linet/stream_monitor.h"
#include "espalier/ranks/world.h"
#include "espalier/tensor/captured_graphs.h"
#include "espalier/train/linet/config.h"
#include "espalier/train/step/gradient_exchange.h"
#include "espalier/train/step/learning_rate.h"
#include "espalier/train/step/loss_scale.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

struct LinetStepOptions {
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;       // the peak
  std::vector<double> rate_factors;  // [S+1] of the streams and the integrated path; empty: 1
  RateSchedule schedule = RateSchedule::one_cycle(1);
  double momentum = 0.9;  // for SGD
  double weight_decay = 0;
  double label_smoothing = 0;
  double clip_norm = 0;  // over all gradients together; 0: none
  double dropout = 0;
  linet::LinetRules rules = linet::LinetRules::kOriginal;  // for blanking and balance
  linet::BlankingRamp blanking;
  double balance = 0;         // weight of the stream-balance loss
  std::string balance_layer;  // whose layers it is averaged over: "layer4."; empty: all
  uint64_t seed = 0;
  int64_t steps_per_epoch = 1;
  at::ScalarType compute = at::kFloat;  // f16 brings a loss scale
  MemoryFormat format = MemoryFormat::kChannelsLast;
  StepGraphs::Options graphs;
  ranks::World* world = &ranks::World::alone();  // who shares a batch out; no graphs where they are several
  bool sync_norm = false;                        // statistics are of the whole batch, not of this rank's part
};

// Means over an epoch.
struct LinetMetrics {
  double loss = 0;
  double accuracy = 0;  // in [0, 1]
  double balance = 0;   // the stream-balance loss; 0 where it is not asked for
  int64_t non_finite = 0;
  int64_t skipped = 0;                    // fp16: steps left out to lower the loss scale
  double loss_scale = 0;                  // fp16: of the last step
  std::vector<double> gradient_norms;     // [S+1]: of every stream's parameters, then the integrated path's
  std::vector<double> stream_losses;      // [S] of the monitors; empty without
  std::vector<double> stream_accuracies;  // [S]
  // [S]: norms, over all steps, that blanking left a single value per channel: running statistics stood in.
  std::vector<int64_t> norm_fallbacks;
};

class LinetStep {
 public:
  // call: of one lane; fields: one a stream. monitor: none, or trained beside.
  LinetStep(linet::Linet& net, linet::StreamMonitor* monitor, data::GatherCall call,
            const std::vector<size_t>& fields, const LinetStepOptions& options);

  // Between epochs: clears the sums, goes to the epoch's first batch and to its place in the schedule.
  void begin_epoch(int64_t epoch);
  void run();
  void run_eagerly();            // the same without a graph
  LinetMetrics metrics() const;  // since begin_epoch(): the one copy back

  // Between epochs: a stream's parameters stay as they are from now on.
  void freeze(int64_t stream);

  const RateSchedule& schedule() const { return options_.schedule; }
  const StepGraphs& graphs() const { return graphs_; }
  const data::BatchDelivery& batch() const { return batch_; }  // the last one
  at::Device device() const { return batch_.device(); }
  // Every tensor and value that a step changes and a later one reads, the network's included.
  void visit_state(run::StateArchive& archive);

 private:
  enum Row : int64_t {
    kLoss,
    kCorrect,
    kValid,
    kNorm,
    kBalance,
    kNonFinite,
    kSkipped,
    kScale,
    kFallbacks,
    kNumRows
  };

  // Parameters whose lanes belong to the same paths, with their optimiser.
  struct Group {
    linet::PathGroup group;
    at::Tensor paths;    // [L] i64
    at::Tensor is_path;  // [L,S+1] f64: 1 where a lane belongs to a path
    std::unique_ptr<lanes::LaneOptimizer> optimizer;
  };

  void body();
  at::Tensor gradients();  // writes them; returns the loss, [1]
  void update(const at::Tensor& loss);
  // The losses of the heads, [S]. keep: [S,B] of the whole batch, or undefined.
  at::Tensor monitor_gradients(const at::Tensor& features, const at::Tensor& keep);
  at::Tensor own_part(const at::Tensor& whole) const;  // cut along axis 1, the batch
  linet::LinetContext context_of(const at::Tensor& keep);
  at::Tensor balance_loss(std::vector<at::Tensor> contributions) const;
  std::unique_ptr<lanes::LaneOptimizer> optimizer_for(
      const std::vector<lanes::LaneParameter*>& parameters) const;
  // [S+1] sums of a kind, or [1]: the integrated path's alone.
  at::Tensor row(Row which) const { return sums_.select(0, which); }
  at::Tensor integrated_of(Row which) const { return row(which).narrow(0, net_.num_streams(), 1); }
  // The same of what is this rank's own, for the streams too.
  at::Tensor own_row(int64_t which) const { return own_sums_.select(0, which); }
  at::Tensor own_streams_of(int64_t which) const { return own_row(which).narrow(0, 0, net_.num_streams()); }
  at::Tensor own_integrated_of(int64_t which) const {
    return own_row(which).narrow(0, net_.num_streams(), 1);
  }

  linet::Linet& net_;
  linet::StreamMonitor* monitor_;
  LinetStepOptions options_;
  data::BatchDelivery batch_;
  std::vector<Group> groups_;
  std::unique_ptr<lanes::LaneAdamW> monitor_optimizer_;
  std::optional<LossScale> loss_scale_;
  at::Tensor peak_rates_;       // [S+1] f64
  at::Tensor is_frozen_;        // [S+1] bool
  at::Tensor label_smoothing_;  // [1] f64
  at::Tensor step_;             // [1] f64: of the whole run, from 0
  at::Tensor sums_;             // [kNumRows,S+1] f64
  // Several ranks: what a step adds at this one, then at all of them, and a row with the losses that decide
  // whether a step counts. One: sums_ itself.
  at::Tensor own_sums_;                         // [kNumRows+1,S+1] f64
  std::unique_ptr<GradientExchange> exchange_;  // none: one rank
  int64_t steps_done_ = 0;
  StepGraphs graphs_;  // last: its graphs are gone before what they write to
};

}  // namespace espalier::train
