// `espalier train linet`: trains a multi-stream network and leaves the results in a run directory.
//
// config.json has the options, environment.json what they came to on this machine, metrics.jsonl one line per
// epoch and the test results at the end, best.safetensors the network of the best epoch.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/ranks/world.h"
#include "espalier/run/directory.h"
#include "espalier/train/linet/config.h"
#include "espalier/train/linet/trainer.h"

namespace espalier::jobs {

inline constexpr const char* kBestLinet = "best.safetensors";

struct LinetResult {
  train::LinetTest tested;  // the best epoch's network
  int64_t best_epoch = 0;
  std::vector<std::string> streams;      // [S] names
  std::vector<std::string> class_names;  // [K]
  double seconds = 0;
  std::filesystem::path run_dir;
};

// What the job tells while it runs. All may be empty.
struct LinetEvents {
  Progress progress;
  std::function<void(const data::ResidentDataset&, train::LinetTrainer&, const std::filesystem::path&)>
      started;
  std::function<void(const train::LinetEpoch&)> epoch_done;
  run::RunEvents run;
};

struct LinetJob {
  train::LinetConfig linet;
  run::RunConfig run;
  nlohmann::ordered_json recorded;  // what config.json says the job was told: the flags, by name
};

// Where several ranks share every batch out, rank 0 has the run directory, and the events.
LinetResult run_linet_job(const LinetJob& job, const LinetEvents& events,
                          ranks::World& world = ranks::World::alone());

// The network of a checkpoint, as a file with one tensor per stream. from: best.safetensors, or its run
// directory.
void export_linet(const std::string& from, const std::string& to);

}  // namespace espalier::jobs
