// `espalier train host`: a population of one lane, and its run directory.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "espalier/core/files/crc32c.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace espalier::jobs {
using namespace train;
namespace {

namespace fs = std::filesystem;

class HostJobTest : public ::testing::Test {
 protected:
  HostJobTest() {
    options_.source.synthetic_train = 60;
    options_.source.synthetic_test = 20;
    options_.source.synthetic_size = {16, 16};
    options_.epochs = 2;
    options_.batch = 18;
    flags_.device = parse_device("cpu");
    flags_.run.run_dir = folder_ / "run";
  }

  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(fs::path(run) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  support::TemporaryFolder folder_;
  cli::HostFlags flags_;
  PopulationConfig& options_ = flags_.population;
};

TEST_F(HostJobTest, WritesALineAnEpochAndTheTestResult) {
  int epochs = 0;
  PopulationEvents events;
  events.epoch_done = [&](const EpochRecord&) { ++epochs; };
  const PopulationResult result = run_population_job(flags_.job(), events);
  EXPECT_EQ(epochs, 2);
  const auto lines = metrics(flags_.run.run_dir);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["epoch"], 2);
  EXPECT_GT(lines[0]["train_loss"], 0.0);
  EXPECT_EQ(lines[2]["test_accuracy"].get<double>(), result.mean().accuracy);
  EXPECT_TRUE(fs::exists(fs::path(flags_.run.run_dir) / "config.json"));
  std::ifstream environment(fs::path(flags_.run.run_dir) / "environment.json");
  EXPECT_EQ(nlohmann::json::parse(environment)["devices"][0]["precision"], "fp32");
}

TEST_F(HostJobTest, GivesTheSameNumbersFromTheSameSeedAndOthersFromAnother) {
  const auto losses = [&](const char* name, uint64_t seed) {
    cli::HostFlags flags = flags_;
    flags.population.seed = seed;
    flags.population.epochs = 1;
    flags.run.run_dir = folder_ / name;
    run_population_job(flags.job(), {});
    return metrics(flags.run.run_dir)[0]["train_loss"].get<double>();
  };
  const double first = losses("a", 1);
  EXPECT_EQ(first, losses("b", 1));
  EXPECT_NE(first, losses("c", 2));
}

TEST_F(HostJobTest, RefusesToTrainOnNothingAndNamesTheNumber) {
  options_.batch = 55;  // 54 are left to train on
  EXPECT_ERROR(run_population_job(flags_.job(), {}), UsageError, "--batch 55", "54");
}

TEST_F(HostJobTest, RefusesAFolderThatHoldsAnotherRun) {
  options_.epochs = 1;
  run_population_job(flags_.job(), {});
  const auto lines = metrics(flags_.run.run_dir);
  EXPECT_NO_THROW(run_population_job(flags_.job(), {}));  // the same: finished already
  EXPECT_EQ(metrics(flags_.run.run_dir).size(), lines.size());
  options_.seed = 5;
  EXPECT_ERROR(run_population_job(flags_.job(), {}), UsageError, "holds another run", "seed was 0, now 5",
               "--run-dir");
  flags_.run.restart = run::Restart::kFresh;
  EXPECT_NO_THROW(run_population_job(flags_.job(), {}));
}

TEST_F(HostJobTest, GoesOnWhereAFileThatIsOnlyLookedAtIsDamaged) {
  options_.epochs = 1;
  run_population_job(flags_.job(), {});
  const fs::path file = fs::path(flags_.run.run_dir) / "environment.json";
  for (const char* text : {"", "[]", "{\"sessions\": 3}", "{\"sessions\": {\"began\": 1}}"}) {
    std::ofstream(file) << text;
    EXPECT_NO_THROW(run_population_job(flags_.job(), {})) << text;
    std::ifstream in(file);
    EXPECT_EQ(nlohmann::json::parse(in)["sessions"].size(), 1u) << text;
  }
}

// A manifest whose checksums are right, and whose values are not.
TEST_F(HostJobTest, RefusesAManifestOfOtherKindsNamingTheCheckpointAndTheKey) {
  using Json = nlohmann::ordered_json;
  options_.epochs = 1;
  run_population_job(flags_.job(), {});
  const run::CheckpointFolder checkpoints(fs::path(flags_.run.run_dir) / "checkpoints");
  const std::string name = checkpoints.names().back();
  const fs::path file = checkpoints.path() / name / run::kManifestFile;
  const Json whole = [&] {
    std::ifstream in(file);
    return Json::parse(in);
  }();
  const std::vector<std::pair<const char*, Json>> damages{
      {"format", 3},        {"version", "1"},    {"version", 1.5},
      {"fingerprint", "x"}, {"convolutions", 1}, {"state", {1, 2}},
      {"score", "x"},       {"batches", 1e99},   {"metrics_bytes", Json::array()}};
  for (const auto& [key, value] : damages) {
    Json damaged = whole;
    damaged[key] = value;
    damaged.erase("crc32c");
    const std::string text = damaged.dump();
    damaged["crc32c"] = crc32c(std::as_bytes(std::span(text)));
    std::ofstream(file) << damaged.dump();
    EXPECT_ERROR(run_population_job(flags_.job(), {}), Error, name, fmt::format("'{}'", key), "got a JSON");
  }
  std::ofstream(file) << whole.dump(1);
  EXPECT_NO_THROW(run_population_job(flags_.job(), {}));
}

TEST_F(HostJobTest, RefusesToGrowANetworkWhoseBatchesRanksShareOut) {
  espalier::testing::as_ranks(2, [&](ranks::World& world) {
    PopulationJob job = flags_.job();
    job.population.controller = "heuristic";
    EXPECT_ERROR(run_population_job(job, {}, world), UsageError, "--controller heuristic", "2 ranks",
                 "does not grow", "one process");
    job.population.controller = "none";
    job.from = folder_ / "grown";
    EXPECT_ERROR(run_population_job(job, {}, world), UsageError, "--from", "grown", "does not grow");
  });
}

TEST_F(HostJobTest, LeavesNothingWhereItNeverBegan) {
  options_.batch = 55;
  EXPECT_THROW(run_population_job(flags_.job(), {}), UsageError);
  EXPECT_FALSE(fs::exists(flags_.run.run_dir));
}

TEST_F(HostJobTest, AsksForAFieldWhereThereAreSeveral) {
  options_.source.data = "synthetic:rgbd";
  EXPECT_ERROR(run_population_job(flags_.job(), {}), UsageError, "--field", "rgb", "depth");
  options_.field = "depth";
  options_.epochs = 1;
  EXPECT_NO_THROW(run_population_job(flags_.job(), {}));
}

}  // namespace
}  // namespace espalier::jobs
