// What an epoch of a population came to, lane by lane.
#pragma once

#include <cstdint>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/gates.h"
#include "espalier/train/controller.h"
#include "espalier/train/evaluation.h"
#include "espalier/train/step_metrics.h"

namespace espalier::train {

enum class LaneOutcome {
  kTrained,
  kRolledBack,  // the epoch did not count: back to the last good state, at half the learning rate
  kRetired,     // not trained any more: its last good state is kept
};
const char* name_of(LaneOutcome outcome);  // "trained", "rolled_back", "retired"

// What an epoch did to one lane.
struct LaneRecord {
  int64_t lane = 0;
  LaneOutcome outcome = LaneOutcome::kTrained;
  LaneMetrics trained;
  LaneScore validated;
  double rate_factor = 1;         // of the epoch that comes
  int64_t num_rollbacks = 0;      // so far
  int64_t num_parameters = 0;     // with what grew
  std::vector<SlotReport> slots;  // as the controller saw them
  SeedAction action;              // of the controller
  grow::GateReport gate;          // that the action met
};

struct EpochRecord {
  int64_t epoch = 0;  // from 1
  double seconds = 0;
  std::vector<LaneRecord> lanes;  // [L]
  int64_t num_captures = 0;       // of graphs, in this epoch
  double capture_seconds = 0;

  int64_t num_retired() const;
  // Over lanes that were trained; over all where none was.
  LaneMetrics mean_trained() const;
  LaneScore mean_validated() const;
};

}  // namespace espalier::train
