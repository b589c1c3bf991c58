// The run layer alone: a job whose whole state is one number.
#include "espalier/run/directory.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/run/earlier.h"
#include "espalier/run/files/packed_metrics.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kBatchesAnEpoch = 3;

class RunTest : public ::testing::Test {
 protected:
  // Within the folder: runs/latest is made where one works.
  RunTest() : before_(fs::current_path()) {
    fs::current_path(folder_.path());
    options_.run_dir = folder_ / "run";
    options_.checkpoint_minutes = 1e6;
    options_.keep_checkpoints = 1;
  }

  ~RunTest() override { fs::current_path(before_); }

  // Epochs with these scores after those that were done; the state counts batches.
  void train(const std::vector<double>& scores, const ordered_json& config = {{"epochs", 9}},
             const std::string& job = "host") {
    int64_t state = 0, epoch = 0;
    RunEvents events;
    events.noted = [&](const std::string& text) { notes_.push_back(text); };
    events.stopped = [&](const fs::path& path) { stopped_.push_back(path); };
    events.checkpoint_saved = [&](const SavedCheckpoint& saved) { saved_.push_back(saved.name); };
    espalier::run::Run run(options_, job, config, events);
    path_ = run.path();
    run.begin({}, [&](StateArchive& archive) {
      archive.value("state", state);
      archive.value("epoch", epoch);
    });
    run.guard([&] {
      for (const double score : scores) {
        for (int64_t batch = 0; batch < kBatchesAnEpoch; ++batch) {
          state += 1;
          run.at_batch();
        }
        epoch += 1;
        for (int64_t lane = 0; lane < num_lanes_; ++lane)
          run.write_metrics({{"kind", "lane"}, {"epoch", epoch}, {"lane", lane}});
        run.write_metrics({{"kind", "epoch"}, {"epoch", epoch}, {"validation_accuracy", score}});
        run.end_epoch(score);
      }
      if (is_stopped_) throw Interrupted(SIGTERM);
      run.save_last();
      run.write_metrics({{"kind", "result"}, {"seconds", run.seconds()}});
    });
    run.finish();
  }

  // The same, but a signal comes at its end.
  void train_and_stop(const std::vector<double>& scores, const ordered_json& config = {{"epochs", 9}}) {
    is_stopped_ = true;
    EXPECT_THROW(train(scores, config), Interrupted);
    is_stopped_ = false;
  }

  CheckpointFolder checkpoints() const {
    return CheckpointFolder(fs::path(options_.run_dir) / "checkpoints");
  }
  ordered_json manifest(const std::string& name) const {
    return read_checkpoint(checkpoints().path() / name).manifest;
  }
  ordered_json json_in(const char* name) const {
    return ordered_json::parse(std::ifstream(fs::path(options_.run_dir) / name));
  }

  std::vector<ordered_json> lines(const std::string& kind) const {
    std::vector<ordered_json> found;
    std::ifstream in(path_ / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
      if (const auto json = ordered_json::parse(line); json["kind"] == kind) found.push_back(json);
    return found;
  }
  static std::vector<std::string> checkpoints_in(const fs::path& run) {
    return CheckpointFolder(run / "checkpoints").names();
  }
  fs::path latest() const { return fs::weakly_canonical("runs/latest"); }

  support::TemporaryFolder folder_;
  fs::path before_;
  RunConfig options_;
  std::vector<std::string> saved_;
  std::vector<std::string> notes_;
  std::vector<fs::path> stopped_;
  fs::path path_;  // the newest run's
  int64_t num_lanes_ = 0;
  bool is_stopped_ = false;
};

TEST_F(RunTest, KeepsTheBestStateWithItsOwnScoreWhateverComesAfter) {
  train({0.5, 0.9, 0.3, 0.8, 0.4});
  EXPECT_EQ(checkpoints().names(), (std::vector<std::string>{"000000000006", "000000000015"}));
  EXPECT_EQ(checkpoints().best(), "000000000006");
  const ordered_json best = manifest("000000000006");
  EXPECT_EQ(best["score"], 0.9);
  EXPECT_EQ(best["state"]["state"], 6);
  EXPECT_EQ(best["state"]["epoch"], 2);
  // Its lines end with those of its epoch: resumed, the run goes on with the next.
  std::ifstream in(fs::path(options_.run_dir) / "metrics.jsonl");
  std::string first, second;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_EQ(best["metrics_bytes"], first.size() + second.size() + 2);
  EXPECT_EQ(manifest("000000000015")["score"], 0.4);
}

TEST_F(RunTest, SavesEveryNewBestOnceAndNothingElse) {
  train({0.1, 0.1, 0.2, 0.15, 0.3});
  EXPECT_EQ(saved_, (std::vector<std::string>{"000000000003", "000000000009", "000000000015"}));
}

TEST_F(RunTest, GivesNoScoreToAStateWithinAnEpoch) {
  options_.checkpoint_minutes = 0;
  options_.keep_checkpoints = 100;
  train({0.5, 0.4});
  for (const char* name : {"000000000001", "000000000002", "000000000004", "000000000005"})
    EXPECT_TRUE(manifest(name)["score"].is_null()) << name;
  EXPECT_EQ(manifest("000000000003")["score"], 0.5);
  EXPECT_EQ(manifest("000000000006")["score"], 0.4);
}

TEST_F(RunTest, KnowsTheBestOfBeforeWhenItGoesOn) {
  train({0.5, 0.9, 0.3});
  saved_.clear();
  train({0.8, 0.7});
  EXPECT_EQ(checkpoints().names(), (std::vector<std::string>{"000000000006", "000000000015"}));
  EXPECT_EQ(manifest("000000000006")["score"], 0.9);
  EXPECT_EQ(saved_, (std::vector<std::string>{"000000000015"}));
  train({0.95, 0.1});
  EXPECT_EQ(checkpoints().names(), (std::vector<std::string>{"000000000018", "000000000021"}));
}

TEST_F(RunTest, TakesReturnsBelowZeroAndLeavesOutScoresThatAreNone) {
  train({std::numeric_limits<double>::quiet_NaN(), -7, -3, -5});
  EXPECT_EQ(checkpoints().best(), "000000000009");
  EXPECT_EQ(manifest("000000000009")["score"], -3);
}

TEST_F(RunTest, WritesDownWhatWasAllowedToChangeAndGoesOnWithIt) {
  const ordered_json first{{"epochs", 2}, {"batch", 8}, {"report-minutes", 5}};
  ordered_json second = first;
  second["epochs"] = 3;
  second["report-minutes"] = 7;
  train({0.5, 0.6}, first);
  EXPECT_ERROR(train({0.7}, second), UsageError, "epochs was 2, now 3");
  EXPECT_EQ(json_in("config.json"), first);
  options_.allow_change = {"epochs"};
  train({0.7}, second);
  ordered_json want = first;
  want["epochs"] = 3;
  EXPECT_EQ(json_in("config.json"), want) << "keys that no run is made of stay";
  const ordered_json sessions = json_in("environment.json")["sessions"];
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_FALSE(sessions[0].contains("changed"));
  EXPECT_EQ(sessions[1]["changed"], ordered_json::parse(R"({"epochs": {"was": 2, "now": 3}})"));
  options_.allow_change.clear();
  train({}, second);
  EXPECT_ERROR(train({}, first), UsageError, "epochs was 3, now 2");
}

// The checkpoint is still of the old configuration, config.json of the new one.
TEST_F(RunTest, GoesOnAfterAChangeThatWasStoppedBeforeItsFirstCheckpoint) {
  const ordered_json first{{"epochs", 2}}, second{{"epochs", 3}};
  train({0.5, 0.6}, first);
  {
    options_.allow_change = {"epochs"};
    espalier::run::Run stopped(options_, "host", second);
    int64_t state = 0, epoch = 0;
    stopped.begin({}, [&](StateArchive& archive) {
      archive.value("state", state);
      archive.value("epoch", epoch);
    });
  }
  options_.allow_change.clear();
  EXPECT_EQ(json_in("config.json"), second);
  train({0.7}, second);
  EXPECT_EQ(json_in("config.json"), second);
  EXPECT_EQ(manifest(checkpoints().names().back())["fingerprint"]["config"], second);
}

TEST_F(RunTest, MovesLatestToEveryRunThatBegan) {
  train({0.5});
  EXPECT_EQ(latest(), fs::canonical("run"));
  options_.run_dir.clear();
  train({0.5});
  EXPECT_EQ(latest(), fs::canonical(path_));
  EXPECT_EQ(fs::read_symlink("runs/latest"), path_.filename()) << "so that runs/ may be moved as a whole";
  options_.resume = "run";
  train({});
  EXPECT_EQ(latest(), fs::canonical("run"));
}

TEST_F(RunTest, LeavesNothingOfAStartThatFailed) {
  const auto fail_to_start = [&](const std::string& job) {
    const espalier::run::Run run(options_, job, {{"epochs", 9}});
  };
  options_.run_dir = folder_ / "a/b/run";
  fail_to_start("host");
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  options_.restart = Restart::kResume;
  EXPECT_ERROR(fail_to_start("host"), Error, "holds no run to go on with", "--restart resume");
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  options_.restart = Restart::kAuto;
  fs::create_directories(options_.run_dir);
  fail_to_start("host");
  EXPECT_TRUE(fs::is_empty(options_.run_dir)) << "not even its lock, in a folder that was there";
  train({0.5});
  fs::remove("runs/latest");
  fail_to_start("host");
  EXPECT_FALSE(fs::exists("runs/latest"));
  EXPECT_TRUE(fs::exists(fs::path(options_.run_dir) / "metrics.jsonl")) << "what was there stays";
}

TEST_F(RunTest, RefusesToResumeNothing) {
  options_.run_dir.clear();
  options_.restart = Restart::kResume;
  EXPECT_ERROR(train({0.5}), UsageError, "--restart resume", "--run-dir or --resume");
}

// Else the job would begin anew in whatever folder is there.
TEST_F(RunTest, RefusesToResumeACheckpointOutsideItsRun) {
  train({0.5, 0.6});
  const fs::path outside = fs::path(folder_.path()) / "kept/of/mine";
  fs::create_directories(outside);
  const fs::path own = checkpoints().path() / checkpoints().names().back();
  fs::copy(own, outside, fs::copy_options::recursive);
  std::ofstream(fs::path(folder_.path()) / "kept/events.tfevents.1") << "someone else's";
  options_.run_dir.clear();
  options_.resume = outside;
  EXPECT_ERROR(train({0.7}), UsageError, "--resume", "outside its run", "'checkpoints'");
  EXPECT_TRUE(fs::exists(fs::path(folder_.path()) / "kept/events.tfevents.1"));
  fs::rename(own, own.parent_path() / ".unfinished-2");
  options_.resume = own.parent_path() / ".unfinished-2";
  EXPECT_ERROR(train({0.7}), UsageError, "--resume", "outside its run");
}

TEST_F(RunTest, RefusesToResumeARunWithoutACheckpointOrALine) {
  train({0.5});
  fs::remove_all("run/checkpoints");
  std::ofstream("run/metrics.jsonl", std::ios::trunc);
  options_.run_dir.clear();
  options_.resume = "run";
  EXPECT_ERROR(train({0.7}), Error, "has no checkpoint to go on from", "--restart fresh");
}

TEST_F(RunTest, BeginsTheRunThatResumeNamesAnewWhereFreshIsAsked) {
  train({0.5, 0.6});
  options_.run_dir.clear();
  options_.resume = "run";
  options_.restart = Restart::kFresh;
  train({0.7});
  EXPECT_EQ(path_, fs::canonical("run"));
  EXPECT_EQ(checkpoints_in(path_), std::vector<std::string>{"000000000003"});
  options_.resume = "run/checkpoints/000000000003";
  EXPECT_ERROR(train({0.7}), UsageError, "--restart fresh", "leave one of them out");
}

TEST_F(RunTest, NamesTheJobOfARunThatIsNotItsOwn) {
  train({0.5}, {{"epochs", 9}}, "population");
  EXPECT_ERROR(train({0.5}), UsageError, "that is a population run", "espalier train population --resume");
  EXPECT_EQ(kind_text("evaluate"), "that is an evaluate run");
}

TEST_F(RunTest, AddsUpTheTimeOfItsSessions) {
  train_and_stop({0.5});
  ordered_json manifest = this->manifest("000000000003");
  EXPECT_GT(manifest["seconds"], 0);
  // As if the first session had taken an hour.
  const auto newest = read_checkpoint(checkpoints().path() / "000000000003");
  manifest["seconds"] = 3600;
  manifest.erase("crc32c");
  std::vector<CheckpointTensor> tensors;
  for (const TensorEntry& entry : newest.header.tensors) tensors.push_back({entry, newest.bytes_of(entry)});
  checkpoints().remove("000000000003");
  checkpoints().write("000000000003", tensors, manifest);
  train({0.6});
  EXPECT_GT(lines("result").front()["seconds"], 3600);
  EXPECT_LT(lines("result").front()["seconds"], 3700);
}

TEST_F(RunTest, SaysThatItIsFinishedWhenStartedAgain) {
  train({0.5, 0.6});
  EXPECT_TRUE(notes_.empty());
  train({});
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("this run is finished"), notes_[0].npos) << notes_[0];
  EXPECT_NE(notes_[0].find("--allow-change epochs"), notes_[0].npos) << notes_[0];
  notes_.clear();
  options_.allow_change = {"epochs"};
  train({0.7}, {{"epochs", 10}});
  EXPECT_TRUE(notes_.empty()) << notes_[0];
}

TEST_F(RunTest, NamesAStoppedRunOfTheSameConfigurationInsteadOfSilentlyBeginningAnother) {
  options_.run_dir.clear();
  train_and_stop({0.5});
  const fs::path stopped = path_;
  EXPECT_EQ(stopped_, std::vector<fs::path>{stopped});
  EXPECT_TRUE(notes_.empty());
  train({0.5}, {{"epochs", 8}});
  EXPECT_TRUE(notes_.empty()) << "another configuration";
  train({0.5}, {{"epochs", 9}, {"keep-checkpoints", 7}});
  ASSERT_EQ(notes_.size(), 1u) << "what a run is not made of may differ";
  EXPECT_NE(notes_[0].find("espalier train host --resume " + stopped.string()), notes_[0].npos) << notes_[0];
  EXPECT_NE(path_, stopped);
  notes_.clear();
  options_.resume = stopped;
  train({0.6});
  options_.resume.clear();
  train({0.5});
  EXPECT_TRUE(notes_.empty()) << "it is finished now: " << notes_[0];
}

TEST_F(RunTest, LeavesOutLinesOfLanesThatNobodyAskedFor) {
  num_lanes_ = 2;
  options_.lane_lines = 3;
  const auto epochs_of_lanes = [&] {
    std::vector<int64_t> epochs;
    for (const ordered_json& line : lines("lane"))
      if (line["lane"] == 1) epochs.push_back(line["epoch"]);
    return epochs;
  };
  train({0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, {{"epochs", 6}});
  EXPECT_EQ(epochs_of_lanes(), (std::vector<int64_t>{1, 4, 6}));
  EXPECT_EQ(lines("epoch").size(), 6u);
  options_.restart = Restart::kFresh;
  options_.lane_lines = 0;
  train({0.1, 0.2}, {{"epochs", 2}});
  EXPECT_TRUE(lines("lane").empty());
}

TEST_F(RunTest, GoesOnWithMetricsThatWerePacked) {
  train({0.5, 0.6});
  pack_metrics(path_);
  train({0.7});
  EXPECT_EQ(lines("epoch").size(), 3u);
  EXPECT_FALSE(is_packed(path_));
  pack_metrics(path_);
  options_.restart = Restart::kFresh;
  train({0.5});
  EXPECT_EQ(lines("epoch").size(), 1u);
  EXPECT_FALSE(fs::exists(path_ / kPackedMetrics));
}

#if !defined(NDEBUG)
TEST_F(RunTest, RefusesALineThatNoReaderKnows) {
  espalier::run::Run run(options_, "host", {{"epochs", 9}});
  run.begin({}, [](StateArchive&) {});
  EXPECT_ERROR(run.write_metrics({{"kind", "lane"}, {"colour", 1}}), c10::Error, "write_metrics", "'colour'");
}
#endif

}  // namespace
}  // namespace espalier::run
