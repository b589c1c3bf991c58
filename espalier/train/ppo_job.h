// `espalier train ppo`: rounds of episodes, and what the policy learned, left in a run directory.
//
// config.json has the options, environment.json what they came to on this machine, metrics.jsonl a line a
// step and lane and one a round, and at the end one for the whole run; policy.safetensors is the policy after
// the last round. Everything is decided and rewarded by the validation split.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/train/ppo_trainer.h"
#include "espalier/train/run.h"

namespace espalier::train {

struct PpoResult {
  int64_t rounds = 0;        // that were played in this run
  double first_return = 0;   // means over the first tenth of them, at least one round
  double last_return = 0;    // and the last tenth
  double last_accuracy = 0;  // of validation
  double seconds = 0;
  std::filesystem::path run_dir;
  std::filesystem::path policy;  // empty where none learned
};

// What the job tells while it runs. All may be empty.
struct PpoEvents {
  Progress progress;
  std::function<void(PpoTrainer&, const data::ResidentDataset&, const std::filesystem::path&)> started;
  StepDone step_done;
  std::function<void(const RoundRecord&)> round_done;
  RunEvents run;
};

PpoResult run_ppo_job(const PpoJobOptions& options, const PpoEvents& events);

// Where the environments live, in order, with the data there.
std::vector<Site> sites_of(const EnvironmentOptions& options, const Progress& progress);

}  // namespace espalier::train
