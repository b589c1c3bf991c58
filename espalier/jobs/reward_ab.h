// `espalier train ppo --reward-ab A,B`: two policies that learn by different rewards, and which of them grows
// better networks.
//
// Kept true: each has half of the networks, with the same first weights and the same order of samples as the
// other's, and normalisers and updates of its own: it learns bit for bit what it would alone. They are
// compared by test accuracy, on episodes that neither has seen. Every part is a run of its own below one
// folder (a, b, evaluate), and goes on where it was stopped; policies that changed are compared afresh.
#pragma once

#include <array>
#include <functional>

#include "espalier/jobs/evaluate.h"
#include "espalier/jobs/ppo.h"

namespace espalier::jobs {

struct RewardAbJob {
  std::array<PpoJob, 2> learning;  // with their rewards, and half of the networks each
  EvaluateJob comparison;
};

// What both policies have in common, and their rewards. run.run_dir: the folder of all of it; empty: a fresh
// one.
struct RewardAbConfig {
  train::PpoConfig both;
  std::array<policy::RewardConfig, 2> rewards;
  run::RunConfig run;
};
// The parts of it, without what they record. Refuses an odd number of networks, another controller than ppo,
// and a run to resume.
RewardAbJob reward_ab_job(const RewardAbConfig& config);

// All may be empty. which: 0 or 1.
struct RewardAbEvents {
  std::function<PpoEvents(size_t which)> learning;
  std::function<void(size_t which, const PpoResult&)> learned;
  EvaluateEvents comparison;
};
// The scores are in the order of the rewards.
EvaluateResult run_reward_ab_job(const RewardAbJob& job, const RewardAbEvents& events);

}  // namespace espalier::jobs
