#include "espalier/jobs/population.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "espalier/watch/lines/reader.h"
#include "espalier/watch/page/data.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::jobs {
using namespace train;
namespace {

namespace fs = std::filesystem;

class PopulationJobTest : public ::testing::Test {
 protected:
  PopulationJobTest() {
    options_.source.synthetic_train = 60;
    options_.source.synthetic_test = 20;
    options_.source.synthetic_size = {8, 8};
    options_.lanes = 2;
    options_.epochs = 2;
    options_.batch = 18;
    options_.crop_pad = 1;
    options_.devices = {parse_device("cpu")};
    options_.controller = "random";
    flags_.run.run_dir = folder_ / "run";
  }

  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(fs::path(run) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  support::TemporaryFolder folder_;
  cli::PopulationFlags flags_;
  PopulationConfig& options_ = flags_.population;
};

TEST_F(PopulationJobTest, WritesALineALaneAndOneForAllOfThem) {
  const PopulationResult result = run_population_job(flags_.job(), {});
  const auto lines = metrics(flags_.run.run_dir);
  ASSERT_EQ(lines.size(), 2u * 3u + 3u);
  EXPECT_EQ(lines[0]["lane"], 0);
  EXPECT_EQ(lines[1]["lane"], 1);
  EXPECT_EQ(lines[1]["outcome"], "trained");
  EXPECT_EQ(lines[2]["lanes"], 2);
  EXPECT_NEAR(lines[2]["train_loss"].get<double>(),
              (lines[0]["train_loss"].get<double>() + lines[1]["train_loss"].get<double>()) / 2, 1e-12);
  EXPECT_EQ(lines[5]["epoch"], 2);
  EXPECT_EQ(lines[7]["test_accuracy"].get<double>(), result.tested[1].accuracy);
  std::ifstream in(fs::path(flags_.run.run_dir) / "environment.json");
  EXPECT_EQ(nlohmann::json::parse(in)["threads"], at::get_num_threads());
}

TEST_F(PopulationJobTest, GivesTheSameNumbersTwiceAndPutsTorchBackAsItWas) {
  options_.deterministic = true;
  std::vector<nlohmann::json> runs[2];
  for (const int i : {0, 1}) {
    flags_.run.run_dir = folder_ / std::to_string(i);
    run_population_job(flags_.job(), {});
    runs[i] = metrics(flags_.run.run_dir);
    for (auto& line : runs[i])
      for (const char* time : {"seconds", "time/capture_seconds"}) line.erase(time);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

// Plants what rules try first, in the first slot of every lane.
struct PlantsFirstChoice final : Controller {
  explicit PlantsFirstChoice(int32_t blueprint) : first(blueprint) {}
  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override {
    std::vector<SeedAction> actions(lanes.size());
    for (size_t i = 0; i < lanes.size(); ++i)
      if (may_choose(lanes[i].slots[0].state, SeedOp::kGerminate))
        actions[i] = {.op = SeedOp::kGerminate, .slot = 0, .blueprint = first, .steps = 1};
    return actions;
  }
  int32_t first;
};

TEST_F(PopulationJobTest, PlantsABlueprintOfAProgramsOwn) {
  struct PutsBack {
    grow::BlueprintRegistry before = grow::blueprints();
    ~PutsBack() { grow::blueprints() = before; }
  } const as_it_was;
  grow::Blueprint mine = grow::blueprints().at(5);
  mine.name = "mine";
  mine.preference = 0;
  grow::blueprints().add(mine);
  controllers().add({.name = "plants_first_choice", .make = [](const ControllerOptions& options) {
                       EXPECT_EQ(options.blueprints, (std::vector<int32_t>{8, 6, 2, 3, 4, 1, 5, 7}));
                       return std::make_unique<PlantsFirstChoice>(options.blueprints.front());
                     }});
  options_.controller = "plants_first_choice";
  run_population_job(flags_.job(), {});
  const auto lines = metrics(flags_.run.run_dir);
  EXPECT_EQ(lines[0]["action"], "GERMINATE r0c0 mine");
  EXPECT_EQ(lines[3]["slots"][0]["blueprint"], "mine");
}

TEST_F(PopulationJobTest, SaysWhatAnotherMemoryFormatCosts) {
  options_.resident.memory_format = MemoryFormat::kContiguous;
  std::vector<FormatComparison> told;
  PopulationEvents events;
  events.formats_compared = [&](const FormatComparison& compared) { told.push_back(compared); };
  run_population_job(flags_.job(), events);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_GT(told[0].step_ms, 0);
  ASSERT_TRUE(told[0].channels_last_ms);
  EXPECT_GT(*told[0].channels_last_ms, 0);
  const auto lines = metrics(flags_.run.run_dir);
  ASSERT_EQ(lines.size(), 2u * 3u + 1u + 3u);
  EXPECT_EQ(lines[3]["memory_format"], "contiguous");
  EXPECT_EQ(lines[3]["time/step_ms"].get<double>(), told[0].step_ms);
  EXPECT_EQ(lines[3]["time/channels_last_step_ms"].get<double>(), *told[0].channels_last_ms);
}

TEST_F(PopulationJobTest, ComparesNothingInChannelsLast) {
  options_.epochs = 1;
  PopulationEvents events;
  events.formats_compared = [](const FormatComparison&) { FAIL(); };
  run_population_job(flags_.job(), events);
}

TEST_F(PopulationJobTest, FailsWhereEveryLaneHadToBeRetired) {
  options_.learning_rate = 100;
  options_.weight_decay = 1;
  options_.epochs = 40;
  options_.controller = "none";
  EXPECT_ERROR(run_population_job(flags_.job(), {}), Error, "every lane", "--learning-rate 100", "--clip");
}

TEST_F(PopulationJobTest, RefusesAHostThatTheImagesAreTooSmallFor) {
  options_.host = "cifar_scale";
  EXPECT_ERROR(run_population_job(flags_.job(), {}), Error, "8");
}

TEST_F(PopulationJobTest, RefusesConvolutionsThatAreNoRunsOwn) {
  options_.convolutions = folder_ / "none.json";
  EXPECT_ERROR(run_population_job(flags_.job(), {}), UsageError, "--convolutions", "none.json",
               "cannot be read");
  options_.convolutions = folder_ / "convolutions.json";
  for (const char* text : {"not JSON", "[1]", "{\"forward\": 3}"}) {
    std::ofstream(options_.convolutions) << text;
    EXPECT_ERROR(run_population_job(flags_.job(), {}), UsageError, "--convolutions", "an object of strings");
  }
}

TEST_F(PopulationJobTest, GivesOnTwoDevicesWhatItGivesOnOne) {
  options_.lanes = 3;
  options_.epochs = 6;
  options_.embargo = 1;
  const auto run_on = [&](size_t shards) {
    options_.devices.assign(shards, parse_device("cpu"));
    flags_.run.run_dir = folder_ / std::to_string(shards);
    run_population_job(flags_.job(), {});
    std::vector<nlohmann::json> lines = metrics(flags_.run.run_dir);
    for (nlohmann::json& line : lines) line.erase("seconds");
    return lines;
  };
  const auto one = run_on(1), two = run_on(2);
  EXPECT_EQ(one, two);
  EXPECT_TRUE(std::ranges::any_of(one, [](const nlohmann::json& line) { return line.contains("action"); }));
  EXPECT_EQ(
      nlohmann::json::parse(std::ifstream(fs::path(flags_.run.run_dir) / "environment.json"))["devices"],
      nlohmann::json::parse(R"([{"device": "cpu", "precision": "fp32"}])"))
      << "each once";
}

TEST_F(PopulationJobTest, RecordsHowManySamplesAreScoredAtATimeWhateverIsTrained) {
  options_.epochs = 1;
  options_.controller = "none";
  options_.source.synthetic_train = 400;
  options_.resident.validation = 200;
  for (const int64_t batch : {18, 90}) {
    options_.batch = batch;
    flags_.run.run_dir = folder_ / std::to_string(batch);
    run_population_job(flags_.job(), {});
    const auto facts =
        nlohmann::json::parse(std::ifstream(fs::path(flags_.run.run_dir) / "environment.json"));
    EXPECT_EQ(facts["validation_batch"], 50) << "four batches of at most 64, with --batch " << batch;
  }
}

TEST_F(PopulationJobTest, ShowsNothingOfStepsThatWereNotValidated) {
  options_.epochs = 5;
  options_.validate_every = 2;
  run_population_job(flags_.job(), {});
  int64_t num_lines = 0;
  for (const nlohmann::json& line : metrics(flags_.run.run_dir)) {
    if (line["kind"] != "lane" && line["kind"] != "epoch") continue;
    num_lines += 1;
    const int64_t epoch = line["epoch"];
    const bool is_validated = epoch % 2 == 0 || epoch == 5;
    for (const char* key : {"validation_loss", "validation_accuracy", "best_validation_accuracy",
                            "worst_validation_accuracy"}) {
      if (line["kind"] == "lane" && !line.contains(key)) continue;
      EXPECT_EQ(line[key].is_number(), is_validated) << key << " in epoch " << epoch;
    }
    EXPECT_TRUE(line["train_loss"].is_number());
  }
  EXPECT_EQ(num_lines, 5 * 3);
  options_.validate_every = 1;
  EXPECT_ERROR(run_population_job(flags_.job(), {}), UsageError, "validate-every was 2, now 1");
}

// The page of the run when its last step was not validated.
TEST_F(PopulationJobTest, ShowsWhatTheLastValidationSaid) {
  options_.epochs = 5;
  options_.validate_every = 2;
  run_population_job(flags_.job(), {});
  watch::RunRecord run;
  std::vector<nlohmann::json> validated;  // by lane
  for (const nlohmann::json& line : metrics(flags_.run.run_dir)) {
    if (line.value("epoch", 9) > 3) continue;
    watch::add_line(run, line.dump());
    if (line["kind"] == "lane" && line["epoch"] == 2) validated.push_back(line);
  }
  const nlohmann::json page = watch::page_data(run);
  ASSERT_EQ(page["frontier"]["points"].size(), 2u);
  ASSERT_EQ(page["payoff"]["lanes"].size(), 2u);
  for (size_t lane = 0; lane < 2; ++lane) {
    const double accuracy = validated[lane]["validation_accuracy"];
    EXPECT_NEAR(page["details"][0]["last"]["validation_accuracy"][lane], accuracy, 1e-4);
    EXPECT_TRUE(page["details"][0]["last"]["train_loss"][lane].is_number());
    EXPECT_EQ(page["frontier"]["points"][lane][0], validated[lane]["parameters"]);
    EXPECT_NEAR(page["frontier"]["points"][lane][1], accuracy, 1e-4);
  }
  EXPECT_TRUE(page["details"][0]["best_lane"].is_number());
}

TEST_F(PopulationJobTest, RefusesMoreDevicesThanLanes) {
  options_.devices = {parse_device("cpu"), parse_device("cpu"), parse_device("cpu")};
  EXPECT_ERROR(run_population_job(flags_.job(), {}), UsageError, "--devices cpu,cpu,cpu", "--lanes 2");
}

}  // namespace
}  // namespace espalier::jobs
