// `espalier train ppo`: rounds of episodes, and what the policy learned, left in a run directory.
//
// config.json has the options, environment.json what they came to on this machine, metrics.jsonl one
// line per step and lane, one per round, and at the end one for the whole run; policy.safetensors is the
// policy after the last round. Everything is decided and rewarded by the validation split.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/run/directory.h"
#include "espalier/train/control/ppo_trainer.h"

namespace espalier::jobs {

inline constexpr const char* kPolicyFile = "policy.safetensors";  // in the run's directory

struct PpoResult {
  int64_t rounds = 0;        // that were played in this run
  double first_return = 0;   // means over the first tenth of them, at least one round
  double last_return = 0;    // and the last tenth
  double last_accuracy = 0;  // on the validation split
  double seconds = 0;
  std::filesystem::path run_dir;
  std::filesystem::path policy;  // empty where none learned
};

// What the job tells while it runs. All may be empty.
struct PpoEvents {
  Progress progress;
  std::function<void(train::PpoTrainer&, const data::ResidentDataset&, const std::filesystem::path&)> started;
  train::StepDone step_done;
  std::function<void(const train::RoundRecord&)> round_done;
  run::RunEvents run;
};

struct PpoJob {
  train::PpoConfig ppo;
  run::RunConfig run;               // resume: a run, or the file of a policy to begin with
  std::string save;                 // where the policy is written after every round; empty: nowhere else
  nlohmann::ordered_json recorded;  // what config.json says the job was told: the flags, by name
};

// Several processes: all of them call it; rank 0 tells the events, and has the result.
PpoResult run_ppo_job(const PpoJob& job, const PpoEvents& events,
                      ranks::World& world = ranks::World::alone());

// What the controller takes, beside the networks.
train::JobNeeds needs_of(const train::PpoConfig& options, const train::GrowthSpace& space);

// Where the environments live, in order, with the data there.
std::vector<train::ShardSetup> shards_of(const train::EnvironmentConfig& options, const Progress& progress);

}  // namespace espalier::jobs
