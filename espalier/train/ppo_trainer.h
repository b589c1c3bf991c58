// Rounds of episodes: all environments live through one together, then the policy learns from it.
//
// Kept true: a round is a function of (options, round, the policy as it was before), so a resumed run goes on
// as one that was never stopped; the host waits once a step, and once a round for the update's diagnostics.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "espalier/train/environments.h"
#include "espalier/train/episode_returns.h"
#include "espalier/train/policy_controller.h"
#include "espalier/train/ppo_options.h"

namespace espalier::train {

// What an episode came to, lane by lane.
struct EpisodeRecord {
  int64_t round = 0;                // from 1
  EpochRecord last;                 // the last epoch's
  std::vector<double> returns;      // [L] undiscounted
  std::vector<int64_t> lengths;     // [L] decisions that counted
  std::vector<RewardTerms> terms;   // [L] sums
  std::vector<int64_t> seeds_kept;  // [L] fossilised
  std::vector<double> added;        // [L] parameters, as a share of the host's
  double seconds = 0;
  int64_t num_captures = 0;  // of graphs
  double capture_seconds = 0;
  PartTimes times;  // of the steps that were sampled

  int64_t num_lost() const;
  double mean_return() const;
  double mean_accuracy() const;  // of validation, lost lanes included
};

struct RoundRecord {
  EpisodeRecord episode;
  std::optional<std::array<double, policy::kNumDiagnostics>> diagnostics;  // none: nothing was learned
  double update_seconds = 0;
};

// After every epoch of an episode. rewards: of the decisions before it, [L].
using StepDone =
    std::function<void(int64_t round, const EpochRecord&, const std::vector<RewardTerms>& rewards)>;

// What an episode tells while it is played. All may be empty.
struct EpisodeEvents {
  std::string title;  // of the progress, step by step
  Progress progress;
  StepDone step_done;
};

// One episode of all environments under one controller. round: from 0. kGoOn: one that is under way, as
// visit_state() of all three left it.
enum class Episode { kBegin, kGoOn };
EpisodeRecord play_episode(Environments& environments, Controller& controller, EpisodeReturns& returns,
                           int64_t round, const EpisodeEvents& events, Episode episode = Episode::kBegin);

class PpoTrainer {
 public:
  PpoTrainer(const PpoJobOptions& options, std::vector<Site> sites);

  RoundRecord train_round(const Progress& progress = {}, const StepDone& step_done = {});

  int64_t rounds_done() const { return rounds_done_; }
  Environments& environments() { return environments_; }
  PolicyController* policy() { return policy_.get(); }  // none where another controller decides

  // Everything, also in the middle of an episode: what is loaded goes on as if it had never stopped.
  void visit_state(StateArchive& archive);

  // The policy between two rounds, in one file. Only where there is a policy.
  void save(const std::string& path) const;
  void resume(const std::string& path);

 private:
  PpoJobOptions options_;
  Environments environments_;
  std::shared_ptr<PolicyController> policy_;
  std::shared_ptr<Controller> controller_;  // the policy, or another
  EpisodeReturns returns_;
  int64_t rounds_done_ = 0;
  bool is_under_way_ = false;  // the episode of the round after these has begun
};

}  // namespace espalier::train
