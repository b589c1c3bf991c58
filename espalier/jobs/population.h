// `espalier train population` and `espalier train host`: trains all lanes and leaves the results in a run
// directory.
//
// config.json has the options, environment.json what they came to on this machine (device, precision,
// threads), metrics.jsonl one line per lane and epoch and then one for all of them, and the test results at
// the end. Decisions use the validation split; the test split is read once, at the end, to report. A job that
// was asked for another memory format than channels-last says after the first epoch what that costs.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/ranks/world.h"
#include "espalier/run/config.h"
#include "espalier/run/directory.h"
#include "espalier/train/control/ppo_config.h"
#include "espalier/train/population/config.h"
#include "espalier/train/population/format_comparison.h"
#include "espalier/train/population/shard.h"
#include "espalier/train/population/shard_setup.h"

namespace espalier::jobs {

struct PopulationResult {
  std::vector<train::LaneScore> tested;  // [L]
  int64_t num_retired = 0;
  double seconds = 0;
  std::filesystem::path run_dir;

  train::LaneScore mean() const;
  int64_t best_lane() const;
};

// What the job tells while it runs. All may be empty.
struct PopulationEvents {
  Progress progress;
  std::function<void(std::span<const train::DeviceStart>, const std::filesystem::path&)> started;
  std::function<void(const train::EpochRecord&)> epoch_done;
  std::function<void(const train::FormatComparison&)> formats_compared;
  run::RunEvents run;
};

enum class LaneLines { kNo, kYes };  // whether every lane gets lines of its own

// What several processes share out: the lanes, each of which belongs to one process; or every batch, of lanes
// that all of them have. A job whose batches are shared out grows nothing.
enum class RanksShare { kLanes, kBatches };

struct PopulationJob {
  train::PopulationConfig population;
  run::RunConfig run;
  nlohmann::ordered_json recorded;  // what config.json says the job was told: the flags, by name
  // Networks to begin with, as saved_networks() takes them: one for all lanes, or one each; empty: fresh
  // hosts.
  std::string from = {};
  std::string name = "population";  // names the run directory
  LaneLines lane_lines = LaneLines::kYes;
  RanksShare ranks_share = RanksShare::kLanes;
};

// Whether there are seeds in the networks that --from names.
bool has_seeds(const std::string& from);

// What the job takes beside bare hosts; reads the file of a policy (population.controller ppo:FILE), and
// knows nothing of networks that it begins with.
train::JobNeeds needs_of(const train::PopulationConfig& options, const train::GrowthSpace& space);

// Fails where every lane had to be retired.
// Several processes: all of them call it; rank 0 tells the events, and has the result.
PopulationResult run_population_job(const PopulationJob& job, const PopulationEvents& events,
                                    ranks::World& world = ranks::World::alone());

}  // namespace espalier::jobs
