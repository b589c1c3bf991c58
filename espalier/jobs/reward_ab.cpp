#include "espalier/jobs/reward_ab.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/run/location.h"

namespace espalier::jobs {
namespace {

constexpr std::array<const char*, 2> kNames{"a", "b"};

}  // namespace

RewardAbJob reward_ab_job(const RewardAbConfig& config) {
  const int64_t lanes = config.both.population.lanes;
  if (lanes % 2 != 0)
    fail_usage("--lanes {}: two policies get half of the networks each (--reward-ab); want an even number",
               lanes);
  if (config.both.controller != "ppo")
    fail_usage("--controller {}: --reward-ab compares what policies learn; leave --controller out",
               config.both.controller);
  if (!config.run.resume.empty())
    fail_usage("--resume {}: two policies (--reward-ab) go on by the same command with the same --run-dir",
               config.run.resume);
  const std::filesystem::path folder = run::run_path(config.run, "reward-ab");
  train::PpoConfig half = config.both;
  half.population.lanes = lanes / 2;
  RewardAbJob job;
  EvaluateConfig compared;
  static_cast<train::EnvironmentConfig&>(compared) = half;
  compared.population.time_every = 0;
  compared.controllers.clear();
  for (size_t which = 0; which < kNames.size(); ++which) {
    half.reward = config.rewards[which];
    run::RunConfig run = config.run;
    run.run_dir = (folder / kNames[which]).string();
    job.learning[which] = {.ppo = half, .run = run};
    compared.controllers.push_back("ppo:" + (folder / kNames[which] / kPolicyFile).string());
  }
  job.comparison = {.evaluate = compared, .run = {.run_dir = (folder / "evaluate").string()}};
  return job;
}

EvaluateResult run_reward_ab_job(const RewardAbJob& job, const RewardAbEvents& events) {
  for (size_t which = 0; which < job.learning.size(); ++which) {
    const PpoResult result =
        run_ppo_job(job.learning[which], events.learning ? events.learning(which) : PpoEvents{});
    if (events.learned) events.learned(which, result);
  }
  EvaluateJob comparison = job.comparison;
  // Afresh where the policies learned more, anew or otherwise since they were compared.
  const run::RunConfig& asked = job.learning[0].run;
  if (asked.restart == run::Restart::kFresh || !asked.allow_change.empty() ||
      !compared_these_files(comparison.run.run_dir, comparison.evaluate))
    comparison.run.restart = run::Restart::kFresh;
  return run_evaluate_job(comparison, events.comparison);
}

}  // namespace espalier::jobs
