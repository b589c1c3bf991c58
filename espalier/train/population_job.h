// `espalier train population`: trains all lanes and leaves the results in a run directory.
//
// config.json has the options, environment.json what they came to on this machine (device, precision,
// threads), metrics.jsonl a line a lane and epoch and then one for all of them, and the test results at the
// end. Decisions use the validation split; the test split is read once, at the end, to report. A job that was
// asked for another memory format than channels-last says after the first epoch what that costs.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/train/format_comparison.h"
#include "espalier/train/population_options.h"
#include "espalier/train/population_trainer.h"
#include "espalier/train/run.h"
#include "espalier/train/site.h"

namespace espalier::train {

struct PopulationResult {
  std::vector<LaneScore> tested;  // [L]
  int64_t num_retired = 0;
  double seconds = 0;
  std::filesystem::path run_dir;

  LaneScore mean() const;
  int64_t best_lane() const;
};

// What the job tells while it runs. All may be empty.
struct PopulationEvents {
  Progress progress;
  std::function<void(std::span<const DeviceStart>, const std::filesystem::path&)> started;
  std::function<void(const EpochRecord&)> epoch_done;
  std::function<void(const FormatComparison&)> formats_compared;
  RunEvents run;
};

enum class LaneLines { kNo, kYes };  // whether every lane gets lines of its own

struct JobKind {
  std::string name = "population";  // of the run directory
  LaneLines lane_lines = LaneLines::kYes;
  nlohmann::ordered_json config = nullptr;  // what config.json holds; none: the options
};

// Fails where every lane had to be retired.
PopulationResult run_population_job(const PopulationOptions& options, const PopulationEvents& events,
                                    const JobKind& kind = {});

}  // namespace espalier::train
