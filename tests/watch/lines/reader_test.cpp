#include "espalier/watch/lines/reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "espalier/core/error.h"
#include "espalier/core/files/lock.h"
#include "espalier/run/files/packed_metrics.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::watch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLane =
    R"({"kind":"lane","epoch":1,"lane":2,"train_loss":0.5,"validation_accuracy":0.25,"parameters":100,)"
    R"("slots":[{"slot":"r0c1","stage":"BLENDING","blueprint":"norm","amplitude":0.5}]})";
constexpr const char* kEpoch = R"({"kind":"epoch","epoch":1,"validation_accuracy":0.2,"seconds":1.5})";
constexpr const char* kResult = R"({"kind":"result","test_accuracy":0.75,"seconds":9})";

class RunReaderTest : public ::testing::Test {
 protected:
  void append(const std::string& text) const {
    std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << text;
  }
  void append_line(const std::string& line) const { append(line + "\n"); }

  support::TemporaryFolder folder_;
};

TEST_F(RunReaderTest, ReadsLinesOfEveryKind) {
  append_line(kLane);
  append_line(kEpoch);
  append_line(R"({"kind":"round","round":3,"charts/episodic_return":1.5,"time/update_seconds":2})");
  append_line(R"({"kind":"lane_result","lane":2,"test_loss":0.1,"test_accuracy":0.9})");
  append_line(
      R"({"kind":"result","test_accuracy":0.75,"streams":{"rgb":{"share":0.5}},"classes":["a","b"],"confusion":[[1,2],[3,4]]})");
  const RunRecord record = read_run(folder_.path());
  ASSERT_EQ(record.lanes.size(), 1u);
  EXPECT_EQ(record.lanes[0].lane, 2);
  EXPECT_EQ(record.lanes[0].train_loss, 0.5);
  ASSERT_EQ(record.lanes[0].slots.size(), 1u);
  EXPECT_EQ(record.slots.at(record.lanes[0].slots[0].slot), "r0c1");
  EXPECT_EQ(record.lanes[0].slots[0].stage, SeedStage::kBlending);
  EXPECT_EQ(record.blueprints.at(*record.lanes[0].slots[0].blueprint), "norm");
  ASSERT_EQ(record.epochs.size(), 1u);
  EXPECT_EQ(number_in(record.epochs[0].numbers, "seconds"), 1.5);
  ASSERT_EQ(record.rounds.size(), 1u);
  EXPECT_EQ(record.rounds[0].round, 3);
  EXPECT_EQ(record.lane_results.at(0).test_accuracy, 0.9);
  ASSERT_TRUE(record.result.has_value());
  EXPECT_EQ(record.test_accuracy(), 0.75);
  EXPECT_EQ(number_in(record.result->streams.at("rgb"), "share"), 0.5);
  EXPECT_EQ(record.result->confusion, (std::vector<std::vector<double>>{{1, 2}, {3, 4}}));
  EXPECT_EQ(record.num_damaged, 0);
}

TEST_F(RunReaderTest, ReadsWhatWasChosenAndWhatASeedContributes) {
  append_line(
      R"({"kind":"lane","epoch":1,"lane":0,"outcome":"trained","action":"GERMINATE r0c1 conv_light",)"
      R"("slots":[{"slot":"r0c1","stage":"HOLDING","blueprint":"norm","contribution_points":1.25}]})");
  append_line(R"({"kind":"lane","epoch":2,"lane":0,"outcome":"rolled_back","action":"FOSSILIZE r0c1"})");
  append_line(R"({"kind":"lane","epoch":3,"lane":0,"action":"CELEBRATE r0c1"})");
  const RunRecord record = read_run(folder_.path());
  ASSERT_EQ(record.lanes.size(), 3u);
  EXPECT_EQ(record.lanes[0].op, SeedOp::kGerminate);
  EXPECT_EQ(record.blueprints.at(record.lanes[0].planted.value()), "conv_light");
  EXPECT_EQ(record.lanes[0].slots.at(0).contribution_points, 1.25);
  EXPECT_TRUE(record.lanes[0].is_trained);
  EXPECT_EQ(record.lanes[1].op, SeedOp::kFossilize);
  EXPECT_FALSE(record.lanes[1].planted);
  EXPECT_FALSE(record.lanes[1].is_trained);
  EXPECT_EQ(record.lanes[2].op, SeedOp::kWait);
}

TEST_F(RunReaderTest, ReadsAnEvaluation) {
  append_line(
      R"({"kind":"evaluated_lane","controller":"none","episode":1,"lane":1,"test_accuracy":0.5,"return":2,"parameters":9,"seeds_kept":1})");
  append_line(R"({"kind":"evaluated_lane","controller":"none","lane":1})");
  append_line(R"({"kind":"evaluated","controller":"none","test_accuracy":0.5,"intervals_over":"episodes"})");
  append_line(R"({"kind":"result","episodes":1,"seconds":3})");
  const RunRecord record = read_run(folder_.path());
  ASSERT_EQ(record.evaluated_lanes.size(), 1u);
  EXPECT_EQ(record.controllers.at(record.evaluated_lanes[0].controller), "none");
  EXPECT_EQ(record.evaluated_lanes[0].episode_return, 2);
  EXPECT_EQ(record.evaluated.at(0).intervals_over, "episodes");
  EXPECT_EQ(record.job, "evaluate");
  EXPECT_EQ(record.state, RunState::kFinished);
  EXPECT_EQ(record.num_episodes(), 1);
  EXPECT_EQ(record.seconds(), 3);
  EXPECT_EQ(record.num_damaged, 1);
}

TEST_F(RunReaderTest, KnowsThePolicysReturn) {
  EXPECT_TRUE(std::isnan(read_run(folder_.path()).last_return()));
  append_line(R"({"kind":"round","round":1,"charts/episodic_return":1.5})");
  EXPECT_EQ(read_run(folder_.path()).last_return(), 1.5);
  append_line(R"({"kind":"result","last_return":1.25})");
  EXPECT_EQ(read_run(folder_.path()).last_return(), 1.25);
}

TEST_F(RunReaderTest, ADirectoryWithoutFilesIsAnEmptyRun) {
  const RunRecord record = read_run(folder_.path());
  EXPECT_EQ(record.state, RunState::kStopped);
  EXPECT_EQ(record.job, "?");
  EXPECT_EQ(record.num_lines, 0);
  EXPECT_TRUE(std::isnan(record.best().validation_accuracy));
  EXPECT_TRUE(std::isnan(record.seconds()));
}

TEST_F(RunReaderTest, AMissingDirectoryIsNamed) {
  EXPECT_ERROR(read_run(folder_ / "nothing"), Error, "nothing", "run directory");
}

TEST_F(RunReaderTest, ACutLastLineWaitsForItsRest) {
  append_line(kEpoch);
  append(std::string(kLane).substr(0, 40));
  RunReader reader(folder_.path());
  reader.refresh();
  EXPECT_EQ(reader.record().lanes.size(), 0u);
  EXPECT_EQ(reader.record().num_damaged, 0);
  EXPECT_FALSE(reader.refresh());
  append_line(std::string(kLane).substr(40));
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.record().lanes.size(), 1u);
  EXPECT_EQ(reader.record().epochs.size(), 1u);
}

TEST_F(RunReaderTest, DamagedLinesAreCountedAndSkipped) {
  append_line("not json");
  append_line("[1,2]");
  append_line(R"({"kind":"lane","lane":0})");
  append_line(R"({"kind":"lane","lane":-1,"epoch":1})");
  append_line(R"({"kind":"lane","lane":99999999999,"epoch":1})");
  append_line(R"({"kind":"lane","lane":18446744073709551615,"epoch":1})");
  append_line(R"({"kind":"lane","lane":"0","epoch":1.5})");
  append_line(std::string("{\"kind\":\"epoch\",\"epoch\":1,\"x\":\"\xff\"}"));
  append_line(std::string(100000, '['));
  append_line(std::string(2, '\0'));
  append_line("");
  append_line(kEpoch);
  const RunRecord record = read_run(folder_.path());
  EXPECT_EQ(record.num_damaged, 10);
  EXPECT_EQ(record.num_lines, 11);
  EXPECT_EQ(record.lanes.size(), 0u);
  EXPECT_EQ(record.epochs.size(), 1u);
}

TEST_F(RunReaderTest, UnknownKindsKeysAndStagesAreIgnored) {
  append_line(R"({"kind":"memory_format","step_ms":3})");
  append_line(R"({"controller":"none"})");
  append_line(R"({"kind":"lane","epoch":1,"lane":0,"new":[1],"slots":[{"slot":"a","stage":"BLOOMING"},7]})");
  const RunRecord record = read_run(folder_.path());
  EXPECT_EQ(record.num_damaged, 0);
  ASSERT_EQ(record.lanes.size(), 1u);
  EXPECT_EQ(record.lanes[0].slots.size(), 0u);
}

TEST_F(RunReaderTest, NullAndMissingNumbersAreNotNumbers) {
  append_line(R"({"kind":"lane","epoch":1,"lane":0,"train_loss":null,"validation_accuracy":"high"})");
  append_line(R"({"kind":"lane","epoch":2,"lane":0,"validation_accuracy":0.5})");
  append_line(R"({"kind":"epoch","epoch":1,"validation_accuracy":null})");
  const RunRecord record = read_run(folder_.path());
  EXPECT_TRUE(std::isnan(record.lanes[0].train_loss));
  EXPECT_TRUE(std::isnan(record.lanes[0].validation_accuracy));
  EXPECT_TRUE(std::isnan(number_in(record.epochs[0].numbers, "validation_accuracy")));
  EXPECT_EQ(record.best().validation_accuracy, 0.5);
  EXPECT_EQ(record.best().epoch, 2);
  EXPECT_EQ(record.best().lane, 0);
}

TEST_F(RunReaderTest, AConfusionMatrixThatIsNotSquareIsLeftOut) {
  for (const char* rows : {"[[1,2]]", "[[1],[2]]", "[1,2]", "[[1,2],[3,4],[5,6]]"}) {
    RunRecord record;
    add_line(record, std::string(R"({"kind":"result","classes":["a","b"],"confusion":)") + rows + "}");
    EXPECT_TRUE(record.result->confusion.empty()) << rows;
    EXPECT_TRUE(record.result->classes.empty()) << rows;
  }
}

TEST_F(RunReaderTest, AFileThatBecameShorterIsReadAnew) {
  append_line(kEpoch);
  append_line(kLane);
  RunReader reader(folder_.path());
  reader.refresh();
  ASSERT_EQ(reader.record().lanes.size(), 1u);
  fs::resize_file(folder_ / "metrics.jsonl", std::string_view(kEpoch).size() + 1);
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.record().epochs.size(), 1u);
  EXPECT_EQ(reader.record().lanes.size(), 0u);
  EXPECT_EQ(reader.record().num_lines, 1);
  append_line(kLane);
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.record().lanes.size(), 1u);
}

TEST_F(RunReaderTest, AnotherFileByThatNameIsReadAnew) {
  append_line(kEpoch);
  RunReader reader(folder_.path());
  reader.refresh();
  folder_.write("other", std::string(kEpoch) + "\n" + kEpoch + "\n");
  fs::rename(folder_ / "other", folder_ / "metrics.jsonl");
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.record().epochs.size(), 2u);
}

TEST_F(RunReaderTest, PiecesOfAnyLengthGiveTheSameRecord) {
  const std::string text = std::string(kLane) + "\n" + kEpoch + "\n" + kResult + "\n";
  RunReader reader(folder_.path());
  for (const char c : text) {
    append(std::string(1, c));
    reader.refresh();
  }
  EXPECT_EQ(reader.record().num_lines, 3);
  EXPECT_EQ(reader.record().num_damaged, 0);
  EXPECT_EQ(reader.record().lanes.size(), 1u);
}

TEST_F(RunReaderTest, ALineWithoutEndIsCountedOnceAndSkipped) {
  append(std::string(size_t{40} << 20, 'x'));
  RunReader reader(folder_.path());
  reader.refresh();
  EXPECT_EQ(reader.record().num_damaged, 1);
  append_line("the end");
  append_line(kEpoch);
  reader.refresh();
  EXPECT_EQ(reader.record().num_damaged, 1);
  EXPECT_EQ(reader.record().epochs.size(), 1u);
}

TEST_F(RunReaderTest, TheLockAndTheLastLineTellTheState) {
  append_line(kEpoch);
  RunReader reader(folder_.path());
  reader.refresh();
  EXPECT_EQ(reader.record().state, RunState::kStopped);
  {
    const LockFile lock(folder_ / "lock", "test");
    EXPECT_TRUE(reader.refresh());
    EXPECT_EQ(reader.record().state, RunState::kRunning);
    EXPECT_NE(reader.record().holder.find("process"), std::string::npos);
  }
  append_line(kResult);
  reader.refresh();
  EXPECT_EQ(reader.record().state, RunState::kFinished);
  append_line(kEpoch);  // resumed with more epochs, and stopped
  reader.refresh();
  EXPECT_EQ(reader.record().state, RunState::kStopped);
  EXPECT_FALSE(reader.refresh());
}

TEST_F(RunReaderTest, TheJobIsWhatTheEnvironmentSaysElseWhatTheLinesShow) {
  append_line(R"({"kind":"epoch","epoch":1,"streams":{"rgb":{"share":1}}})");
  EXPECT_EQ(read_run(folder_.path()).job, "linet");
  folder_.write("environment.json", R"({"job":"population","began":"2026-01-02T03:04:05Z"})");
  EXPECT_EQ(read_run(folder_.path()).job, "population");
  EXPECT_EQ(read_run(folder_.path()).began, "2026-01-02T03:04:05Z");
  folder_.write("environment.json", "{ damaged");
  EXPECT_EQ(read_run(folder_.path()).job, "linet");
}

TEST_F(RunReaderTest, AConfigurationNestedWithoutEndIsCutNotFollowed) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  folder_.write("config.json", R"({"batch":7,"deep":)" + deep + "}");
  const RunRecord record = read_run(folder_.path());
  EXPECT_EQ(record.config["batch"], 7);
  EXPECT_LT(record.config.dump().size(), 100u);
}

TEST_F(RunReaderTest, ReadsMetricsThatWereCompressed) {
  append_line(kEpoch);
  append_line(kResult);
  RunReader reader(folder_.path());
  reader.refresh();
  const RunRecord before = reader.record();
  run::pack_metrics(folder_.path());
  EXPECT_TRUE(holds_run(folder_.path()));
  EXPECT_TRUE(reader.refresh()) << "another file";
  EXPECT_FALSE(reader.refresh()) << "read once";
  for (const RunRecord& after : {reader.record(), read_run(folder_.path())}) {
    EXPECT_EQ(after.epochs.size(), before.epochs.size());
    EXPECT_EQ(after.state, RunState::kFinished);
    EXPECT_EQ(after.num_lines, before.num_lines);
  }
  folder_.write(run::kPackedMetrics, "no gzip");
  EXPECT_EQ(read_run(folder_.path()).num_lines, 0);
}

TEST_F(RunReaderTest, FollowsALinkToTheRun) {
  folder_.write("run-1/metrics.jsonl", std::string(kResult) + "\n");
  fs::create_directory_symlink("run-1", folder_ / "latest");
  EXPECT_EQ(read_run(folder_ / "latest").name, "run-1");
}

TEST_F(RunReaderTest, DurationIsTheResultsElseTheSum) {
  append_line(kEpoch);
  append_line(
      R"({"kind":"round","round":1,"time/episode_seconds":2,"time/update_seconds":1,"time/capture_seconds":9})");
  EXPECT_EQ(read_run(folder_.path()).seconds(), 4.5);
  append_line(kResult);
  EXPECT_EQ(read_run(folder_.path()).seconds(), 9);
}

}  // namespace
}  // namespace espalier::watch
