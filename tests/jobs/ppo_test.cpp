#include "espalier/jobs/ppo.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::jobs {
using namespace train;
namespace {

namespace fs = std::filesystem;

class PpoJobTest : public ::testing::Test {
 protected:
  PpoJobTest() {
    options_.population.source.synthetic_train = 60;
    options_.population.source.synthetic_test = 20;
    options_.population.source.synthetic_size = {8, 8};
    options_.population.lanes = 2;
    options_.population.epochs = 4;
    options_.population.batch = 9;
    options_.population.crop_pad = 1;
    flags_.run.run_dir = folder_ / "run";
    options_.population.devices = {parse_device("cpu")};
    options_.rounds = 2;
    options_.policy.encoder_size = 8;
    options_.policy.hidden_size = 8;
  }

  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(fs::path(flags_.run.run_dir) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  support::TemporaryFolder folder_;
  cli::PpoFlags flags_;
  PpoConfig& options_ = flags_.ppo;
};

TEST_F(PpoJobTest, WritesALineAStepAndLaneAndOneARoundByTheNamesPeopleKnow) {
  const PpoResult result = run_ppo_job(flags_.job(), {});
  const auto lines = metrics();
  ASSERT_EQ(lines.size(), 2u * (4 * 2 + 1) + 1);
  EXPECT_EQ(lines[0]["round"], 1);
  EXPECT_EQ(nlohmann::json::parse(
                std::ifstream(fs::path(flags_.run.run_dir) / "environment.json"))["validation_batch"],
            6)
      << "all samples of the split, a tenth of the training's";
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_FALSE(lines[0].contains("reward"));
  EXPECT_EQ(lines[3]["lane"], 1);
  EXPECT_EQ(lines[3]["step"], 2);
  double sum = 0;  // lane 0's, over the round
  for (size_t step = 1; step < 4; ++step) sum += lines[2 * step]["reward"].get<double>();
  double other = 0;
  for (size_t step = 1; step < 4; ++step) other += lines[2 * step + 1]["reward"].get<double>();
  const auto& round = lines[8];
  EXPECT_NEAR(round["charts/episodic_return"].get<double>(), (sum + other) / 2, 1e-9);
  EXPECT_EQ(round["charts/episodic_length"], 3);
  for (const char* name : {"charts/SPS",
                           "charts/learning_rate",
                           "losses/policy_loss",
                           "losses/value_loss",
                           "losses/entropy",
                           "losses/old_approx_kl",
                           "losses/approx_kl",
                           "losses/clipfrac",
                           "losses/explained_variance",
                           "heads/op/entropy",
                           "heads/op/ratio",
                           "heads/op/clipfrac",
                           "heads/op/approx_kl",
                           "rewards/accuracy",
                           "rewards/end",
                           "lanes/validation_accuracy",
                           "growth/seeds_kept",
                           "time/update_seconds",
                           "time/train_ms",
                           "time/validation_ms",
                           "time/act_ms"})
    EXPECT_TRUE(round.contains(name)) << name;
  EXPECT_EQ(lines.back()["rounds"], 2);
  EXPECT_TRUE(fs::exists(result.policy));
  EXPECT_TRUE(fs::exists(result.run_dir / "config.json"));
}

TEST_F(PpoJobTest, GoesOnWithTheRoundAfterTheLastThatWasSaved) {
  options_.population.deterministic = true;
  options_.rounds = 3;
  run_ppo_job(flags_.job(), {});
  const auto whole = metrics();
  flags_.run.run_dir = folder_ / "first";
  options_.rounds = 2;
  flags_.save = folder_ / "saved.safetensors";
  run_ppo_job(flags_.job(), {});
  flags_.run.run_dir = folder_ / "second";
  flags_.run.resume = flags_.save;
  options_.rounds = 3;
  const PpoResult second = run_ppo_job(flags_.job(), {});
  EXPECT_EQ(second.rounds, 1);
  EXPECT_EQ(metrics()[0]["round"], 3);
  EXPECT_EQ(metrics()[0]["train_loss"], whole[2 * 9]["train_loss"]);
  flags_.run.run_dir = folder_ / "third";
  EXPECT_ERROR(run_ppo_job(flags_.job(), {}), UsageError, "--resume", "3 rounds", "--rounds 3");
}

TEST_F(PpoJobTest, RefusesFilesWhereNothingLearns) {
  options_.controller = "random";
  flags_.save = folder_ / "policy.safetensors";
  EXPECT_ERROR(run_ppo_job(flags_.job(), {}), UsageError, "--save", "--controller random");
}

TEST_F(PpoJobTest, TakesTheWholeConfigurationFromAFile) {
  const std::string text = config_text(flags_);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["lanes"], 2);
  EXPECT_EQ(json["batch"], 9);
  EXPECT_EQ(json["episode-length"], 4);
  cli::PpoFlags read;
  from_json(read, nlohmann::ordered_json::parse(text), "test");
  EXPECT_EQ(config_text(read), text);
}

}  // namespace
}  // namespace espalier::jobs
