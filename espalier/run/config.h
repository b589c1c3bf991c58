// Where a run leaves its results, and how it goes on after it was stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::run {

// Where run_dir holds a run. kAuto: goes on with it if the configuration is the same; kFresh: throws it away;
// kResume: goes on, and fails without a checkpoint.
enum class Restart : uint8_t { kAuto, kFresh, kResume };

struct RunConfig {
  std::string run_dir;  // empty: a new folder in runs/
  std::string resume;   // a run's directory, one of its checkpoints, or latest
  Restart restart = Restart::kAuto;
  std::vector<std::string> allow_change;  // keys of the configuration that may differ from the checkpoint's
  double checkpoint_minutes = 5;          // 0: after every batch
  int64_t keep_checkpoints = 2;           // the newest; the best is kept besides
  double report_minutes = 5;
  // Lines of single lanes are written in every so many epochs (of rounds, where there are any) and in the
  // last; 0: never.
  int64_t lane_lines = 1;
};

}  // namespace espalier::run
