#include "espalier/jobs/reward_ab.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/tensor/file.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::jobs {
namespace {

// The tensors of a policy and what it learned in, without what its job was told.
nlohmann::json policy_of(const std::filesystem::path& run) {
  const TensorFile file = read_tensors((run / kPolicyFile).string());
  nlohmann::json tensors;
  for (const auto& [name, tensor] : file.tensors) {
    const at::Tensor flat = tensor.to(at::kDouble).flatten();
    tensors[name] =
        std::vector<double>(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
  }
  return tensors;
}

class RewardAbTest : public ::testing::Test {
 protected:
  RewardAbTest() {
    train::PopulationConfig& population = flags_.ppo.population;
    population.source.synthetic_train = 60;
    population.source.synthetic_test = 20;
    population.source.synthetic_size = {8, 8};
    population.lanes = 4;
    population.epochs = 4;
    population.batch = 9;
    population.crop_pad = 1;
    population.devices = {parse_device("cpu")};
    flags_.ppo.rounds = 2;
    flags_.ppo.policy.encoder_size = flags_.ppo.policy.hidden_size = 8;
    flags_.run.run_dir = folder_ / "ab";
    folder_.write("shaped.json", R"({"reward": "shaped", "reward-op": 0.5})");
    folder_.write("sparse.json", R"({"reward": "sparse"})");
  }

  void compare(const std::string& a, const std::string& b) {
    flags_.reward_ab = (folder_ / a) + "," + (folder_ / b);
  }

  support::TemporaryFolder folder_;
  cli::PpoFlags flags_;
};

TEST_F(RewardAbTest, TeachesEachPolicyWhatItWouldLearnAloneAndComparesThem) {
  compare("shaped.json", "sparse.json");
  const EvaluateResult result = run_reward_ab_job(flags_.reward_ab_job(), {});
  ASSERT_EQ(result.scores.size(), 2u);
  EXPECT_EQ(result.scores[0].name, "ppo:" + (folder_ / "ab/a/policy.safetensors"));
  EXPECT_EQ(result.scores[1].accuracy.size(), 8u * 2);
  EXPECT_NE(policy_of(folder_ / "ab/a"), policy_of(folder_ / "ab/b"));

  cli::PpoFlags alone = flags_;
  alone.reward_ab.clear();
  alone.ppo.population.lanes = 2;
  for (const char* which : {"a", "b"}) {
    alone.ppo.reward = {};
    alone.ppo.reward.rule = *which == 'a' ? "shaped" : "sparse";
    if (*which == 'a') alone.ppo.reward.weights.op = 0.5;
    alone.run.run_dir = folder_ / fmt::format("alone_{}", which);
    run_ppo_job(alone.job(), {});
    EXPECT_EQ(policy_of(alone.run.run_dir), policy_of(folder_ / fmt::format("ab/{}", which))) << which;
    const auto config =
        nlohmann::json::parse(std::ifstream(folder_ / fmt::format("ab/{}/config.json", which)));
    EXPECT_EQ(config["lanes"], 2);
    EXPECT_EQ(config["reward"], alone.ppo.reward.rule);
    EXPECT_EQ(config["reward-ab"], "");
  }
}

// The same first weights and the same samples in the same order: by one reward both learn the same.
TEST_F(RewardAbTest, FindsNoDifferenceBetweenARewardAndItself) {
  compare("shaped.json", "shaped.json");
  const EvaluateResult result = run_reward_ab_job(flags_.reward_ab_job(), {});
  EXPECT_EQ(policy_of(folder_ / "ab/a"), policy_of(folder_ / "ab/b"));
  EXPECT_EQ(result.scores[0].accuracy, result.scores[1].accuracy);
}

// What config.json says of the comparison begins nothing anew.
TEST_F(RewardAbTest, RecordsAComparisonThatGoesOn) {
  compare("shaped.json", "sparse.json");
  const RewardAbJob job = flags_.reward_ab_job();
  EXPECT_EQ(job.comparison.run.restart, run::Restart::kAuto);
  EXPECT_EQ(job.comparison.recorded["restart"], "auto");
  EXPECT_EQ(job.comparison.recorded["run-dir"], folder_ / "ab/evaluate");
}

TEST_F(RewardAbTest, GoesOnWhereItWasStopped) {
  compare("shaped.json", "sparse.json");
  const EvaluateResult whole = run_reward_ab_job(flags_.reward_ab_job(), {});
  flags_.run.run_dir = folder_ / "stopped";
  const RewardAbJob job = flags_.reward_ab_job();
  RewardAbEvents events;
  events.learning = [](size_t which) {
    PpoEvents stopping;
    if (which == 1) stopping.round_done = [](const train::RoundRecord&) { throw Interrupted(15); };
    return stopping;
  };
  EXPECT_THROW(run_reward_ab_job(job, events), Interrupted);
  const EvaluateResult again = run_reward_ab_job(job, {});
  EXPECT_EQ(again.scores[0].accuracy, whole.scores[0].accuracy);
  EXPECT_EQ(again.scores[1].accuracy, whole.scores[1].accuracy);
  EXPECT_EQ(policy_of(folder_ / "stopped/b"), policy_of(folder_ / "ab/b"));
}

TEST_F(RewardAbTest, GoesOnWithAComparisonThatWasStopped) {
  compare("shaped.json", "sparse.json");
  flags_.run.run_dir = folder_ / "whole";
  const EvaluateResult whole = run_reward_ab_job(flags_.reward_ab_job(), {});
  flags_.run.run_dir = folder_ / "stopped";
  int episodes = 0;
  RewardAbEvents events, stopping;
  events.comparison.episode_done =
      stopping.comparison.episode_done = [&](const EvaluatedEpisode&) { episodes += 1; };
  stopping.comparison.batch_done = [&] {
    if (episodes == 9) throw Interrupted(15);
  };
  EXPECT_THROW(run_reward_ab_job(flags_.reward_ab_job(), stopping), Interrupted);
  const EvaluateResult again = run_reward_ab_job(flags_.reward_ab_job(), events);
  EXPECT_EQ(episodes, 16) << "eight of each policy, none of them twice";
  for (size_t which = 0; which < 2; ++which)
    EXPECT_EQ(again.scores[which].accuracy, whole.scores[which].accuracy) << which;

  run_reward_ab_job(flags_.reward_ab_job(), events);
  EXPECT_EQ(episodes, 16) << "it was finished";
  flags_.run.restart = run::Restart::kFresh;
  run_reward_ab_job(flags_.reward_ab_job(), events);
  EXPECT_EQ(episodes, 32) << "other policies";
}

TEST_F(RewardAbTest, ComparesAfreshWhatHasLearnedMore) {
  compare("shaped.json", "sparse.json");
  flags_.ppo.rounds = 1;
  run_reward_ab_job(flags_.reward_ab_job(), {});
  flags_.ppo.rounds = 2;
  flags_.run.allow_change = {"rounds"};
  RewardAbEvents events;
  int episodes = 0;
  events.comparison.episode_done = [&](const EvaluatedEpisode&) { episodes += 1; };
  // Stopped before the comparison knows of it.
  events.learned = [](size_t which, const PpoResult&) {
    if (which == 1) throw Interrupted(15);
  };
  EXPECT_THROW(run_reward_ab_job(flags_.reward_ab_job(), events), Interrupted);
  flags_.run.allow_change.clear();
  events.learned = {};
  run_reward_ab_job(flags_.reward_ab_job(), events);
  EXPECT_EQ(episodes, 16);
}

TEST_F(RewardAbTest, RefusesWhatCannotBeMeant) {
  compare("shaped.json", "sparse.json");
  flags_.ppo.population.lanes = 3;
  EXPECT_ERROR(flags_.reward_ab_job(), UsageError, "--lanes 3", "even");
  flags_.ppo.population.lanes = 4;
  flags_.ppo.controller = "random";
  EXPECT_ERROR(flags_.reward_ab_job(), UsageError, "--controller random");
  flags_.ppo.controller = "ppo";
  flags_.save = "p.safetensors";
  EXPECT_ERROR(flags_.reward_ab_job(), UsageError, "--save p.safetensors", "two policies");
  flags_.save.clear();
  flags_.run.resume = folder_ / "ab";
  EXPECT_ERROR(flags_.reward_ab_job(), UsageError, "--resume", "--run-dir");
  flags_.run.resume.clear();
  flags_.reward_ab = folder_ / "shaped.json";
  EXPECT_ERROR(flags_.reward_ab_job(), UsageError, "--reward-ab", "two JSON files");
  folder_.write("lanes.json", R"({"lanes": 3})");
  compare("shaped.json", "lanes.json");
  EXPECT_ERROR(flags_.reward_ab_job(), UsageError, "lanes.json", "lanes");
  folder_.write("negative.json", R"({"reward-rent": -1})");
  compare("negative.json", "shaped.json");
  EXPECT_ERROR(flags_.reward_ab_job(), UsageError, "negative.json", "reward-rent");
  compare("nowhere.json", "shaped.json");
  EXPECT_ERROR(flags_.reward_ab_job(), UsageError, "nowhere.json");
}

}  // namespace
}  // namespace espalier::jobs
