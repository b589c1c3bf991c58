// Scores a multi-stream network on a whole split, in file order and without augmentation.
//
// Kept true: sums stay on the device until the pass is over, one copy back per pass; the network is left as
// it was. Several ranks share the batches out, and all get the score of all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "espalier/data/delivery.h"
#include "espalier/linet/network.h"
#include "espalier/linet/stream_monitor.h"
#include "espalier/ranks/world.h"
#include "espalier/tensor/captured_graphs.h"

namespace espalier::train {

struct LinetScore {
  double loss = 0;
  double accuracy = 0;                          // in [0, 1]
  double mean_class_accuracy = 0;               // over the classes that are there
  std::vector<std::vector<int64_t>> confusion;  // [class][answer]: samples
  std::vector<double> stream_accuracies;        // [S] of the monitors; empty without
  std::vector<double> shares;                   // [S] of what the streams give to the integrated path
};

class LinetEvaluation {
 public:
  // call: of a plan `shared`; fields: one per stream.
  LinetEvaluation(linet::Linet& net, linet::StreamMonitor* monitor, data::GatherCall call,
                  const std::vector<size_t>& fields, int64_t num_batches, at::ScalarType compute,
                  MemoryFormat format, const StepGraphs::Options& graphs,
                  ranks::World& world = ranks::World::alone());

  using Tick = std::function<void(int64_t done, int64_t total)>;

  // without: a stream that is zeroed in all samples.
  LinetScore score(std::optional<int64_t> without = {}, const Tick& tick = {});

  const StepGraphs& graphs() const { return graphs_; }

 private:
  void body(bool is_ablated);

  ranks::World& world_;
  linet::Linet& net_;
  linet::StreamMonitor* monitor_;
  data::BatchDelivery batch_;
  int64_t num_batches_;
  at::Tensor keep_;     // [S,B] bool
  at::Tensor classes_;  // [K] i64: 0, 1, ...
  // What a pass adds up, in one tensor [2 + 2S + K*K] f64, and its parts.
  at::Tensor sums_;
  at::Tensor loss_;       // [1]
  at::Tensor batches_;    // [1]
  at::Tensor hits_;       // [S] of the monitors
  at::Tensor shares_;     // [S]
  at::Tensor confusion_;  // [K,K]
  StepGraphs graphs_;
};

}  // namespace espalier::train
