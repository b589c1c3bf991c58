// What a controller did in the networks of an evaluation, and what each of them ended with: a file that
// `replay` and `static` read (recorded.h). Free of torch, so that the reader of outside bytes can be fuzzed
// alone.
//
// The file is JSON lines: first what was recorded, then one line per network, episode after episode.
// Kept true: what parse_recording() returns has a network for every lane of every episode; actions name slots
// and blueprints of its lists, their numbers are ones that a lifecycle takes, and their steps rise; no slot
// ends with two seeds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/seed_stage.h"

namespace espalier::train {

// What a step of an episode ended with.
struct RecordedAction {
  int64_t step = 1;   // from 1; never the last, after which nothing could come of it
  SeedAction action;  // slot and blueprint: places in the recording's lists

  bool operator==(const RecordedAction& other) const;
};

// A seed that a network felt in the end.
struct RecordedSeed {
  int32_t slot = 0;       // places in the recording's lists
  int32_t blueprint = 0;  //
  BlendOperator blend_operator = BlendOperator::kAdd;
  float amplitude = 1;  // in (0, 1]

  bool operator==(const RecordedSeed&) const = default;
};

struct RecordedNetwork {
  std::vector<RecordedAction> actions;  // all but WAIT
  std::vector<RecordedSeed> seeds;

  bool operator==(const RecordedNetwork&) const = default;
};

struct Recording {
  std::string controller;               // as it was given: "ppo:policy.safetensors"
  std::string host;                     // by its name
  std::vector<std::string> slots;       // the host's, by action index
  std::vector<std::string> blueprints;  // all, by number
  int64_t lanes = 1;
  int64_t episodes = 0;
  int64_t episode_length = 2;               // in steps
  int64_t batches_per_step = 0;             // 0: a pass over the data
  uint64_t seed = 0;                        // the job's
  std::vector<RecordedNetwork> networks{};  // [episodes * lanes]

  bool operator==(const Recording&) const = default;
};

std::string text_of(const Recording& recording);

// Fails with one sentence that names the file and the line where the text is damaged, or no recording.
Recording parse_recording(std::string_view text, const std::string& file);
Recording read_recording(const std::string& path);

}  // namespace espalier::train
