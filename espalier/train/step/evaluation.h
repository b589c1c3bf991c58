// Scores every lane on the same split, or the same part of it, in one order and without augmentation: on the
// validation split after epochs, on the test split once.
//
// Kept true: a pass leaves its sums on the device and reads nothing on the host; all lanes read one batch in
// memory; networks are left as they were; the same logits give the same scores, however a split is cut into
// batches. Several ranks share the batches out, and all get the sums of all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "espalier/data/gather.h"
#include "espalier/grow/network_stack.h"
#include "espalier/tensor/captured_graphs.h"
#include "espalier/train/step/data_parallel.h"
#include "espalier/train/step/step.h"

namespace espalier::train {

struct LaneScore {
  double loss = 0;      // mean over the samples that were scored
  double accuracy = 0;  // in [0, 1]
};

// The index-th of `of` parts of a split's batches, as even as whole batches allow.
struct SplitPart {
  int64_t index = 0;
  int64_t of = 1;

  BatchRange batches(int64_t num_batches) const {
    return {.begin = num_batches * index / of, .end = num_batches * (index + 1) / of};
  }
};

class Evaluation {
 public:
  // call: for a plan `shared`; field: which of the data's; options: compute, format, graphs and world alone
  // are read.
  Evaluation(grow::NetworkStack& population, data::GatherCall call, size_t field, int64_t num_batches,
             const TrainStepOptions& options);

  // Called after every batch of this rank.
  using Tick = std::function<void(int64_t done, int64_t total)>;

  // One pass over the split, or a part of it: of the whole networks, and beside them with the seeds of each
  // of these slots left out in all lanes. slots: ascending.
  void pass(std::span<const int64_t> slots = {}, SplitPart part = {}, const Tick& tick = {});

  // As if there had been no sample.
  void clear() { sums_.zero_(); }

  // [1 + S,3,L] f64 device: of the whole networks, then without each slot: loss times samples, hits, samples;
  // zeros where the last pass left none out.
  const at::Tensor& sums() const { return sums_; }

  // Scores from the sums of one pass, [3,L] on the host. [L]; all zero for a split without samples.
  static std::vector<LaneScore> scores(const at::Tensor& copied);
  // A pass of the whole networks and its scores, by a copy of its own.
  std::vector<LaneScore> score(const Tick& tick = {});

  const StepGraphs& graphs() const { return graphs_; }

 private:
  void body(std::span<const int64_t> slots);
  void add(int64_t place, const at::Tensor& logits);

  ranks::World& world_;
  grow::NetworkStack& population_;
  data::BatchDelivery batch_;  // one lane's, which all read
  int64_t num_batches_;
  at::Tensor sums_;  // [1 + S,3,L] f64
  StepGraphs graphs_;
};

}  // namespace espalier::train
