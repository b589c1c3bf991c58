// Scores every lane on the same whole split, in file order and without augmentation: on the validation split
// every epoch, on the test split once.
//
// Kept true: sums stay on the device until the pass is over, one copy back a pass; all lanes read one batch
// in memory; networks are left as they were.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "espalier/data/gather.h"
#include "espalier/grow/population.h"
#include "espalier/train/step_graphs.h"
#include "espalier/train/train_step.h"

namespace espalier::train {

struct LaneScore {
  double loss = 0;      // mean over the split
  double accuracy = 0;  // in [0, 1]
};

class Evaluation {
 public:
  // call: of a plan `shared`; field: which of the data's. Of the options it reads compute, format and graphs.
  Evaluation(grow::Population& population, data::GatherCall call, size_t field, int64_t num_batches,
             const TrainStepOptions& options);

  // Called after every batch.
  using Tick = std::function<void(int64_t done, int64_t total)>;

  // [L]. All zero for a split without samples.
  std::vector<LaneScore> score(const Tick& tick = {});
  // The same with the seeds of one slot left out, in all lanes.
  std::vector<LaneScore> score_without(int64_t slot, const Tick& tick = {});

  const StepGraphs& graphs() const { return graphs_; }

 private:
  std::vector<LaneScore> pass(const Tick& tick);
  void body();

  grow::Population& population_;
  GatherBuffers batch_;  // of one lane, which all read
  int64_t num_batches_;
  at::Tensor without_;  // [L,S] bool
  at::Tensor sums_;     // [3,L] f64: loss, hits, samples
  StepGraphs graphs_;
};

}  // namespace espalier::train
