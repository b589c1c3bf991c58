#include "espalier/train/host_job.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;

class HostJobTest : public ::testing::Test {
 protected:
  HostJobTest() {
    options_.source.synthetic_train = 60;
    options_.source.synthetic_test = 20;
    options_.source.synthetic_size = "16x16";
    options_.epochs = 2;
    options_.batch = 18;
    options_.device = "cpu";
    options_.run_dir = folder_ / "run";
  }

  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(fs::path(run) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  support::TemporaryFolder folder_;
  HostJobOptions options_;
};

TEST_F(HostJobTest, WritesALineAnEpochAndTheTestResult) {
  int epochs = 0;
  PopulationEvents events;
  events.epoch_done = [&](const EpochRecord&) { ++epochs; };
  const PopulationResult result = run_host_job(options_, events);
  EXPECT_EQ(epochs, 2);
  const auto lines = metrics(options_.run_dir);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["epoch"], 2);
  EXPECT_GT(lines[0]["train_loss"], 0.0);
  EXPECT_EQ(lines[2]["test_accuracy"].get<double>(), result.mean().accuracy);
  EXPECT_TRUE(fs::exists(fs::path(options_.run_dir) / "config.json"));
  std::ifstream environment(fs::path(options_.run_dir) / "environment.json");
  EXPECT_EQ(nlohmann::json::parse(environment)["devices"][0]["precision"], "fp32");
}

TEST_F(HostJobTest, GivesTheSameNumbersFromTheSameSeedAndOthersFromAnother) {
  const auto losses = [&](const char* name, uint64_t seed) {
    HostJobOptions options = options_;
    options.seed = seed;
    options.epochs = 1;
    options.run_dir = folder_ / name;
    run_host_job(options, {});
    return metrics(options.run_dir)[0]["train_loss"].get<double>();
  };
  const double first = losses("a", 1);
  EXPECT_EQ(first, losses("b", 1));
  EXPECT_NE(first, losses("c", 2));
}

TEST_F(HostJobTest, RefusesToTrainOnNothingAndNamesTheNumber) {
  options_.batch = 55;  // 54 are left to train on
  EXPECT_ERROR(run_host_job(options_, {}), UsageError, "--batch 55", "54");
}

TEST_F(HostJobTest, RefusesAFolderThatHoldsAnotherRun) {
  options_.epochs = 1;
  run_host_job(options_, {});
  const auto lines = metrics(options_.run_dir);
  EXPECT_NO_THROW(run_host_job(options_, {}));  // the same: finished already
  EXPECT_EQ(metrics(options_.run_dir).size(), lines.size());
  options_.seed = 5;
  EXPECT_ERROR(run_host_job(options_, {}), UsageError, "holds another run", "seed was 0, now 5", "--run-dir");
  options_.restart = "fresh";
  EXPECT_NO_THROW(run_host_job(options_, {}));
}

TEST_F(HostJobTest, LeavesNothingWhereItNeverBegan) {
  options_.batch = 55;
  EXPECT_THROW(run_host_job(options_, {}), UsageError);
  EXPECT_FALSE(fs::exists(options_.run_dir));
}

TEST_F(HostJobTest, AsksForAFieldWhereThereAreSeveral) {
  options_.source.data = "synthetic:rgbd";
  EXPECT_ERROR(run_host_job(options_, {}), UsageError, "--field", "rgb", "depth");
  options_.field = "depth";
  options_.epochs = 1;
  EXPECT_NO_THROW(run_host_job(options_, {}));
}

}  // namespace
}  // namespace espalier::train
