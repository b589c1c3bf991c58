// `espalier evaluate`: the same episodes under several controllers, side by side.
//
// Kept true: every controller gets the same first weights, the same order of samples and the same length, so
// that episodes can be compared pair by pair; they are episodes that no training round has seen; a policy
// learns nothing here. Accuracy is the test split's, which no decision reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "espalier/train/interval.h"
#include "espalier/train/ppo_trainer.h"

namespace espalier::train {

struct EvaluateOptions : EnvironmentOptions {
  std::string controllers = "none,random,heuristic";
  int64_t episodes = 2;
  bool greedy = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "controllers",
       .help = "whom to compare: none, random, heuristic, and ppo:FILE for a policy that train ppo saved",
       .placeholder = "LIST"},
      controllers);
    v({.name = "episodes", .help = "of all environments, for each controller", .low = 1, .high = 1e6},
      episodes);
    v({.name = "greedy", .help = "a policy takes the likeliest choices instead of drawing"}, greedy);
    EnvironmentOptions::visit(v);
  }
};

// One number an episode and lane, episode after episode, in the same order for every controller.
struct ControllerScores {
  std::string name;              // as it was given
  std::vector<double> accuracy;  // of the test split, at the end
  std::vector<double> added;     // parameters, as a share of the host's
  std::vector<double> kept;      // seeds
  std::vector<double> returns;   // undiscounted, shaped
  int64_t num_lost = 0;
  int64_t num_episodes = 0;

  // Of any of these. Networks of one episode have what they go through in common: with two episodes or more
  // the interval is of their means, of one it is of its networks.
  Interval interval(const std::vector<double>& values) const;
  // Its accuracies minus another's, pair by pair.
  Interval gain_over(const ControllerScores& other) const;
};

struct EvaluateResult {
  std::vector<ControllerScores> scores;  // in the order in which they were given
  double seconds = 0;
  std::filesystem::path run_dir;
};

struct EvaluateEvents {
  Progress progress;
  std::function<void(const std::string& controller, const EpisodeRecord&)> episode_done;
};

EvaluateResult run_evaluate_job(const EvaluateOptions& options, const EvaluateEvents& events);
// The same with data and host given; writes nothing.
std::vector<ControllerScores> evaluate(const EvaluateOptions& options, std::vector<Site> sites,
                                       const EvaluateEvents& events);

}  // namespace espalier::train
