// Rounds of episodes: all environments live through one together, then the policy learns from it.
//
// Kept true: a round is a function of (options, round, the policy as it was before), so a resumed run goes on
// as one that was never stopped; the host waits once per step, and once per round for the update's
// diagnostics.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "espalier/tensor/captured_graphs.h"
#include "espalier/train/control/policy_controller.h"
#include "espalier/train/control/ppo_config.h"
#include "espalier/train/population/trainer.h"

namespace espalier::train {

// What an episode came to, lane by lane.
struct EpisodeRecord {
  int64_t round = 0;                       // from 1
  EpochRecord last;                        // the last epoch's
  std::vector<double> returns;             // [L] undiscounted
  std::vector<int64_t> lengths;            // [L] decisions that counted
  std::vector<std::vector<double>> terms;  // [L] sums, by the rule's names
  std::vector<int64_t> seeds_kept;         // [L] fossilised
  std::vector<double> added;               // [L] parameters, as a share of the host's
  double seconds = 0;
  GraphWork graphs;
  int64_t bytes_between_ranks = 0;
  PartTimes times;  // over the steps that were sampled

  int64_t num_lost() const;
  double mean_return() const;
  double mean_accuracy() const;  // on validation, lost lanes included
};

// What an update told about one head, by the numbers of policy::HeadDiagnostic; none if no step used the
// head.
using HeadDiagnostics = std::array<std::optional<double>, policy::kNumHeadDiagnostics>;

struct RoundRecord {
  EpisodeRecord episode;
  std::optional<std::array<double, policy::kNumDiagnostics>> diagnostics;  // none: nothing was learned
  std::array<HeadDiagnostics, policy::kNumHeads> heads;                    // what was learned, head by head
  double update_seconds = 0;
};

// After every epoch of an episode.
using StepDone = std::function<void(int64_t round, const EpochRecord&)>;

// What an episode tells while it is played. All may be empty.
struct EpisodeEvents {
  std::string title;  // shown with the progress, step by step
  Progress progress;
  StepDone step_done;
};

// One episode of all environments under one controller. round: from 0. kGoOn: one that is under way, as
// visit_state() of both left it.
enum class Episode { kBegin, kGoOn };
EpisodeRecord play_episode(PopulationTrainer& environments, Controller& controller, int64_t round,
                           const EpisodeEvents& events, Episode episode = Episode::kBegin);

class PpoTrainer {
 public:
  // shards: those of this process. Several processes: rank 0's policy acts and learns, the others' rest.
  PpoTrainer(const PpoConfig& options, std::vector<ShardSetup> shards,
             ranks::World& world = ranks::World::alone());

  RoundRecord train_round(const Progress& progress = {}, const StepDone& step_done = {});

  int64_t rounds_done() const { return rounds_done_; }
  PopulationTrainer& environments() { return environments_; }
  PolicyController* policy() { return policy_.get(); }  // none where another controller decides
  Controller& controller() { return *controller_; }     // the policy, or another

  // Everything, also in the middle of an episode: what is loaded goes on as if it had never stopped.
  void visit_state(run::StateArchive& archive);

  // The policy between two rounds, in one file. Only where there is a policy. config: what the job was told,
  // as the file's readers will see it.
  void save(const std::string& path, const std::string& config = {}) const;
  void resume(const std::string& path);

 private:
  PpoConfig options_;
  PopulationTrainer environments_;
  std::shared_ptr<PolicyController> policy_;
  std::shared_ptr<Controller> controller_;  // the policy, or another
  int64_t rounds_done_ = 0;
  bool is_under_way_ = false;  // the episode of the round after these has begun
};

}  // namespace espalier::train
