// The results of one epoch of a population, lane by lane.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "espalier/core/lane_outcome.h"
#include "espalier/core/seed_stage.h"
#include "espalier/grow/gates.h"
#include "espalier/tensor/captured_graphs.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/step/evaluation.h"
#include "espalier/train/step/metrics.h"

namespace espalier::train {

// What the decision before an epoch was worth to one lane.
struct LaneReward {
  std::vector<double> terms;  // by the rule's names (EpochReading::term_names())
  bool counts = false;        // there was one, and the lane was not lost before

  double sum() const;
};

// What an epoch did to one lane.
struct LaneRecord {
  int64_t lane = 0;
  LaneOutcome outcome = LaneOutcome::kTrained;
  Verdict verdict = Verdict::kSound;
  LaneMetrics trained;
  LaneScore validated;       // NaN: not in this epoch
  LaneScore last_validated;  // as the controller is told it: the same, or of the last epoch that was
  // Of the state that it stands at, rolled back or not, as it was measured last; NaN: never, or not since it
  // lost a felt seed.
  double good_accuracy = std::numeric_limits<double>::quiet_NaN();
  double rate_factor = 1;         // for the epoch that comes
  int64_t num_rollbacks = 0;      // so far
  std::vector<int64_t> blamed;    // slots that were barred in this roll-back
  bool compared_anew = false;     // from this roll-back on: what it showed before is no measure any more
  int64_t num_parameters = 0;     // with what grew
  std::vector<SlotReport> slots;  // as the controller saw them
  SeedAction action;              // what the controller chose
  grow::GateReport gate;          // that the action met
  LaneReward reward;              // for the action before the epoch
};

struct EpochRecord {
  int64_t epoch = 0;         // from 1
  bool is_validated = true;  // in this epoch
  int64_t num_scored = 0;    // samples of the validation split, of every lane, in this epoch
  double seconds = 0;
  std::vector<LaneRecord> lanes;    // [L]
  GraphWork graphs;                 // in this epoch, of all shards
  int64_t bytes_between_ranks = 0;  // that this process sent and received

  int64_t num_retired() const;
  // Over lanes that were trained; over all where none was.
  LaneMetrics mean_trained() const;
  LaneScore mean_validated() const;  // NaN: not in this epoch
};

}  // namespace espalier::train
