// Grown networks from wherever they were left: the checkpoints of a run, files that `espalier export` wrote.
//
// Kept true: a network out of a checkpoint has the bits that were trained, with all its seeds at their
// stages; what is damaged, of another kind or of no network is refused in one sentence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/grow/network_file.h"

namespace espalier::jobs {

// Which of a run's checkpoints: that of the last state, or that of the best mean validation accuracy.
enum class CheckpointChoice : uint8_t { kNewest, kBest };

// from: the directory of a run of train population or train host, one of its checkpoints, latest, an exported
// file, or a folder of them. All networks there, lane by lane (files by name).
std::vector<grow::GrownNetwork> saved_networks(const std::string& from,
                                               CheckpointChoice choice = CheckpointChoice::kNewest);

// Which of them.
struct LaneChoice {
  enum class Which : uint8_t { kBest, kAll, kOne };
  Which which = Which::kBest;
  int64_t lane = 0;  // for kOne

  bool operator==(const LaneChoice&) const = default;
};

// The chosen ones; a lane that is not there, or that several are, is refused. best: of validation, which no
// test has seen; the first of equal ones; refused where none of several was validated.
std::vector<grow::GrownNetwork> chosen_networks(std::vector<grow::GrownNetwork> networks,
                                                const LaneChoice& choice);
// The best so many, best first; refused where there are fewer, or more and none was validated.
std::vector<grow::GrownNetwork> best_networks(std::vector<grow::GrownNetwork> networks, int64_t count);

}  // namespace espalier::jobs
