// `espalier evaluate`: the same episodes under several controllers, side by side.
//
// Kept true: every controller gets the same first weights, the same order of samples and the same length, so
// that episodes can be compared pair by pair; they are episodes that no training round has seen; a policy
// learns nothing here. Accuracy is the test split's, which no decision reads. A comparison that was stopped
// goes on with the episode that it was stopped in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "espalier/jobs/comparison_state.h"
#include "espalier/run/directory.h"
#include "espalier/train/control/ppo_trainer.h"
#include "espalier/train/control/recording.h"

namespace espalier::jobs {

// Which networks of an episode --keep keeps: the best, by validation, or all that were not given up.
enum class KeptLanes : uint8_t { kBest, kAll };

struct EvaluateConfig : train::EnvironmentConfig {
  // By their names in train::controllers(), ppo:FILE for a policy that train ppo saved, and static:FILE or
  // replay:FILE for what follows a recording; static and replay alone follow the first policy before them.
  std::vector<std::string> controllers{"none", "random", "heuristic"};
  int64_t episodes = 8;  // that all environments go through, for each controller
  bool greedy = false;   // a policy takes the likeliest choices instead of drawing
  std::string keep;      // folder for networks of every episode, exported; empty: none is kept
  KeptLanes keep_lanes = KeptLanes::kBest;
};

struct EvaluateJob {
  EvaluateConfig evaluate;
  run::RunConfig run;
  nlohmann::ordered_json recorded;  // what config.json says the job was told: the flags, by name
};

struct EvaluateResult {
  std::vector<ControllerScores> scores;  // in the order in which they were given
  double seconds = 0;
  std::filesystem::path run_dir;
};

struct EvaluatedEpisode {
  std::string controller;
  int64_t episode = 0;  // from 1, for each controller
  train::EpisodeRecord record;
  std::vector<train::LaneScore> tested;   // [L]
  std::vector<std::string> reward_terms;  // as record.terms has them
  std::vector<int64_t> illegal;           // [L] actions that were to be replayed and were not possible
};

// All may be empty.
struct EvaluateEvents {
  Progress progress;
  std::function<void(int64_t host_parameters)> begins;
  std::function<void()> batch_done;
  std::function<void(const EvaluatedEpisode&)> episode_done;
  // After every event of the episode, and of its controller if this was its last episode.
  std::function<void()> episode_saved;
  // After its last episode. first: of the first controller, which may be the same.
  std::function<void(const ControllerScores& scores, const ControllerScores& first)> controller_done;
  // Before that: what the n-th controller, from 0, did in all of them.
  std::function<void(size_t controller, const train::Recording&)> recorded;
  run::RunEvents run;
};

// What the controllers take, beside the networks; reads the policies' files.
train::JobNeeds needs_of(const EvaluateConfig& options, const train::GrowthSpace& space);

// Whether the run in the folder compared the policies and recordings that are in the files now: false where
// it has no checkpoint that tells.
bool compared_these_files(const std::filesystem::path& run, const EvaluateConfig& options);

// Several processes: all of them call it; rank 0 tells the events, and has the result.
EvaluateResult run_evaluate_job(const EvaluateJob& job, const EvaluateEvents& events,
                                ranks::World& world = ranks::World::alone());
// The same with data and host given; writes nothing. state: goes on from there.
std::vector<ControllerScores> evaluate(const EvaluateConfig& options, std::vector<train::ShardSetup> shards,
                                       const EvaluateEvents& events,
                                       ranks::World& world = ranks::World::alone());
void evaluate(const EvaluateConfig& options, std::vector<train::ShardSetup> shards,
              const EvaluateEvents& events, ComparisonState& state, ranks::World& world);

}  // namespace espalier::jobs
