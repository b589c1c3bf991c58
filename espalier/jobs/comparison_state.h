// What a comparison has played: its numbers, and what a stopped one goes on from.
//
// Kept true: it changes between two episodes alone, together with the lines of metrics, so that a checkpoint
// taken at any moment is the end of an episode: one that was under way is played again, from its own first
// weights, to the same bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "espalier/core/interval.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::jobs {

// One number per episode and lane, episode after episode, in the same order for every controller.
struct ControllerScores {
  std::string name;              // as it was given
  std::vector<double> accuracy;  // on the test split, at the end
  std::vector<double> added;     // parameters, as a share of the host's
  std::vector<double> kept;      // seeds
  std::vector<double> returns;   // undiscounted, shaped
  int64_t num_lost = 0;
  int64_t num_illegal = 0;  // actions that were to be replayed and were not possible
  int64_t num_episodes = 0;

  // Takes any of these. Networks of one episode have what they go through in common: with two episodes or
  // more the interval is of their means, with one it is of its networks.
  Interval interval(const std::vector<double>& values) const;
  // Its accuracies minus another's, pair by pair.
  Interval gain_over(const ControllerScores& other) const;
  // How likely a gain as large is by chance, whichever its sign: core/sign_flip.h, over the same means.
  double chance_over(const ControllerScores& other) const;

  void visit_state(run::StateArchive& archive);  // all but the name
};

struct ComparisonState {
  std::string compared;                   // what all episodes have in common, in words; empty: not said
  std::vector<ControllerScores> scores;   // in the order of play; of the last, episodes may be to come
  std::string policy;                     // what the first policy did in all its episodes; empty: not yet
  std::string playing;                    // what the last controller did so far; empty: nothing
  std::map<std::string, uint32_t> files;  // checksums of the files that controllers are read from

  void visit_state(run::StateArchive& archive);
};

}  // namespace espalier::jobs
