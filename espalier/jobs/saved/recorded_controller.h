// Controllers that follow what another one did in an evaluation: static:FILE and replay:FILE
// (train/control/recorded.h).
//
// Kept true: a recording is followed where its slots, blueprints and limits are met, a schedule also only
// where an episode has its steps; anything else is refused by the flag that differs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "espalier/train/control/ppo_config.h"
#include "espalier/train/control/recording.h"

namespace espalier::jobs {

// Where a run of evaluate keeps its recordings.
inline constexpr std::string_view kRecordings = "recordings";

// "ppo" of "ppo:FILE": a controller's name without what follows the colon.
std::string label_of(std::string_view controller);

// The same as a part of a file's name, which Python can import: what is no letter, digit or _ becomes _.
std::string file_label(std::string_view controller);

// The file of a run's n-th controller, from 0, in its directory: "recordings/2_ppo.jsonl".
std::string recording_file(size_t controller, std::string_view name);

// What a name asks for.
struct RecordedName {
  enum class Kind : uint8_t { kStatic, kReplay };
  Kind kind = Kind::kStatic;
  std::string file;  // empty: none is named
};
// static, replay, each alone, with :FILE, or with :RUN, the run of an evaluation in which one policy was
// compared; none for another name. flag: how messages call what names the controller.
std::optional<RecordedName> recorded_in(std::string_view controller, std::string_view flag);

struct RecordedPlace {
  std::string name;         // how messages call it: "--controllers replay:FILE"
  std::string length_flag;  // how the job calls the length of an episode
  train::GrowthLimits limits;
};
std::unique_ptr<train::Controller> recorded_controller(RecordedName::Kind kind, train::Recording recording,
                                                       const train::PopulationConfig& options,
                                                       const grow::NetworkStack& population,
                                                       const RecordedPlace& place);

}  // namespace espalier::jobs
