// A run as its directory tells it (docs/runs.md): plain values, made by reader.h and read by everything
// that shows a run.
//
// Kept true: a number that is missing or null in the file is NaN here; indices into the lists of names are
// valid; nothing here depends on the order in which a reader was asked.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/seed_stage.h"

namespace espalier::watch {

inline constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

// By the keys of the metrics line.
using Numbers = std::map<std::string, double>;

// The number of that name, or NaN.
double number_in(const Numbers& numbers, const std::string& key);

enum class RunState : uint8_t { kRunning, kFinished, kStopped };
const char* name_of(RunState state);  // "running", "finished", "stopped"

struct SlotLine {
  uint32_t slot = 0;  // an index of RunRecord::slots
  SeedStage stage = SeedStage::kDormant;
  std::optional<uint32_t> blueprint;  // an index of RunRecord::blueprints
  double amplitude = kMissing;
  double contribution_points = kMissing;  // accuracy in percent, with the seed minus without it
};

// A lane after an epoch, or after a step of a round.
struct LaneLine {
  int64_t round = 0;  // 0: the job has no rounds
  int64_t step = 0;   // or the epoch
  int64_t lane = 0;
  double train_loss = kMissing;
  double train_accuracy = kMissing;
  double validation_loss = kMissing;
  double validation_accuracy = kMissing;
  double gradient_norm = kMissing;
  double parameters = kMissing;
  double reward = kMissing;
  std::vector<SlotLine> slots;      // those that are not dormant
  bool is_trained = true;           // neither rolled back nor retired
  std::string collapse;             // why it was not: is_collapse() of core; or empty
  std::vector<uint32_t> barred;     // by it: indices of RunRecord::slots
  SeedOp op = SeedOp::kWait;        // what the controller chose after it
  std::optional<uint32_t> planted;  // GERMINATE: the blueprint, of RunRecord::blueprints
};

// Its numbers, by their keys in the file.
struct LaneNumber {
  const char* key;
  double LaneLine::*member;
};
inline constexpr auto kLaneNumbers = std::to_array<LaneNumber>({
    {"train_loss", &LaneLine::train_loss},
    {"validation_loss", &LaneLine::validation_loss},
    {"train_accuracy", &LaneLine::train_accuracy},
    {"validation_accuracy", &LaneLine::validation_accuracy},
    {"gradient_norm", &LaneLine::gradient_norm},
    {"parameters", &LaneLine::parameters},
    {"reward", &LaneLine::reward},
});

struct EpochLine {
  int64_t epoch = 0;
  Numbers numbers;
  std::map<std::string, Numbers> streams;  // where a network has several
};

struct RoundLine {
  int64_t round = 0;
  Numbers numbers;
};

struct LaneResult {
  int64_t lane = 0;
  double test_loss = kMissing;
  double test_accuracy = kMissing;
  double parameters = kMissing;
  double seeds_kept = kMissing;
};

// `evaluate`: one network at the end of an episode.
struct EvaluatedLane {
  uint32_t controller = 0;  // index in RunRecord::controllers
  int64_t episode = 0;
  int64_t lane = 0;
  double test_accuracy = kMissing;
  double episode_return = kMissing;
  double parameters = kMissing;
  double seeds_kept = kMissing;
};

// `evaluate`: one controller, over all of its episodes.
struct Evaluated {
  uint32_t controller = 0;  // index in RunRecord::controllers
  Numbers numbers;
  std::string intervals_over;  // "episodes", or "networks" of a single one
};

struct Result {
  Numbers numbers;
  std::map<std::string, Numbers> streams;
  std::vector<std::string> classes;
  std::vector<std::vector<double>> confusion;  // [class][answer], square, as large as `classes`; or empty
};

struct Best {
  double validation_accuracy = kMissing;
  int64_t round = 0;            // 0: the job has no rounds
  int64_t epoch = 0;            // 0: not known, as for the best of a round
  std::optional<int64_t> lane;  // none: not known
};

struct RunRecord {
  std::string name;   // the directory's
  std::string job;    // "host", "population", "linet", "ppo", ...; "?" where nothing tells
  std::string began;  // ISO, UTC; empty: not known
  RunState state = RunState::kStopped;
  std::string holder;  // who works there, when running
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  nlohmann::ordered_json environment = nlohmann::ordered_json::object();

  std::vector<std::string> slots;  // these two in the order of their appearance
  std::vector<std::string> blueprints;
  std::vector<LaneLine> lanes;
  std::vector<EpochLine> epochs;
  std::vector<RoundLine> rounds;
  std::vector<LaneResult> lane_results;
  std::vector<std::string> controllers;  // an evaluation's, in the order of their appearance
  std::vector<EvaluatedLane> evaluated_lanes;
  std::vector<Evaluated> evaluated;
  std::optional<Result> result;

  int64_t num_lines = 0;
  int64_t num_damaged = 0;  // lines that could not be read, and were skipped

  Best best() const;
  double test_accuracy() const;  // the mean over lanes, where there are several; NaN before the end
  // All sessions together: what the end said, else the sum over epochs or rounds; NaN: not known.
  double seconds() const;
  int64_t num_lanes() const;
  int64_t last_epoch() const;  // or step, where there are rounds
  int64_t last_round() const;
  double last_return() const;    // a policy's: at the end, else of the last round; NaN: none
  int64_t num_episodes() const;  // that an evaluation has played, over all controllers
};

}  // namespace espalier::watch
