// A run that was stopped at any moment and resumed ends bit for bit where one that was not does.
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>

#include "espalier/core/checkpoint_folder.h"
#include "espalier/core/error.h"
#include "espalier/core/interrupt.h"
#include "espalier/train/host_job.h"
#include "espalier/train/linet_job.h"
#include "espalier/train/population_job.h"
#include "espalier/train/ppo_job.h"
#include "tests/support/finished_run.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;
using support::expect_same_run;
using support::finished_run;
using support::FinishedRun;

PopulationOptions small_population_job() {
  PopulationOptions options;
  options.source.synthetic_train = 60;
  options.source.synthetic_test = 20;
  options.source.synthetic_size = "8x8";
  options.lanes = 3;
  options.epochs = 6;
  options.batch = 18;
  options.crop_pad = 1;
  options.devices = "cpu";
  options.controller = "random";
  options.embargo = 1;
  return options;
}

LinetOptions small_linet_job() {
  LinetOptions options;
  options.device = "cpu";
  options.source.synthetic_train = 60;
  options.source.synthetic_test = 20;
  options.batch = 18;
  options.epochs = 3;
  options.width = 0.0625;
  options.modality_dropout = 0.5;
  options.dropout = 0.2;
  options.stream_patience = 1;
  return options;
}

PpoJobOptions small_ppo_job() {
  PpoJobOptions options;
  options.population = small_population_job();
  options.population.lanes = 4;
  options.population.epochs = 5;
  options.population.batch = 7;
  options.population.plan = "split";
  options.population.devices = "cpu,cpu";
  options.rounds = 2;
  options.policy.encoder_size = 8;
  options.policy.hidden_size = 8;
  return options;
}

// One kind of job: runs it with these options of the run, and this progress.
struct Job {
  std::string name;
  std::function<void(const RunOptions&, const Progress&)> run;
  std::function<void(const RunOptions&)> run_with_another_seed;

  friend std::ostream& operator<<(std::ostream& stream, const Job& job) { return stream << job.name; }
};

template <class Options, class Run>
Job job_of(const std::string& name, const Options& options, const Run& run) {
  const auto start = [run](Options own, const RunOptions& told, const Progress& progress) {
    RunOptions& inside = [&]() -> RunOptions& {
      if constexpr (std::is_base_of_v<RunOptions, Options>)
        return own;
      else
        return own.population;
    }();
    inside = told;
    run(own, progress);
  };
  const auto seeded = [&] {
    Options other = options;
    if constexpr (std::is_base_of_v<RunOptions, Options>)
      other.seed = 77;
    else
      other.population.seed = 77;
    return other;
  }();
  return {name, [=](const RunOptions& told, const Progress& progress) { start(options, told, progress); },
          [=](const RunOptions& told) { start(seeded, told, {}); }};
}

std::vector<Job> all_jobs() {
  const auto population = [](const PopulationOptions& options, const Progress& progress) {
    PopulationEvents events;
    events.progress = progress;
    run_population_job(options, events);
  };
  const auto host = [](const HostJobOptions& options, const Progress& progress) {
    PopulationEvents events;
    events.progress = progress;
    run_host_job(options, events);
  };
  const auto linet = [](const LinetOptions& options, const Progress& progress) {
    LinetEvents events;
    events.progress = progress;
    run_linet_job(options, events);
  };
  const auto ppo = [](const PpoJobOptions& options, const Progress& progress) {
    PpoEvents events;
    events.progress = progress;
    run_ppo_job(options, events);
  };
  HostJobOptions one;
  static_cast<TrainingOptions&>(one) = small_population_job();
  one.device = "cpu";
  one.epochs = 2;
  // A rate at which lanes fail, are rolled back and retired.
  PopulationOptions failing = small_population_job();
  failing.learning_rate = 100;
  failing.devices = "cpu,cpu";
  PpoJobOptions by_chance = small_ppo_job();
  by_chance.controller = "random";
  by_chance.population.devices = "cpu";
  return {job_of("host", one, host),
          job_of("population", small_population_job(), population),
          job_of("population that fails", failing, population),
          job_of("linet", small_linet_job(), linet),
          job_of("ppo", small_ppo_job(), ppo),
          job_of("ppo, random", by_chance, ppo)};
}

class ResumeTest : public ::testing::TestWithParam<Job> {
 protected:
  RunOptions at(const std::string& name) const {
    RunOptions options;
    options.run_dir = folder_ / name;
    options.checkpoint_minutes = 1e6;
    return options;
  }

  support::TemporaryFolder folder_;
};

class ResumeSlow : public ResumeTest {};

TEST_P(ResumeSlow, FromEveryBatchEndsAsIfNeverStopped) {
  RunOptions whole = at("whole");
  GetParam().run(whole, {});
  const FinishedRun undisturbed = finished_run(whole.run_dir);

  RunOptions often = at("often");
  often.checkpoint_minutes = 0;
  often.keep_checkpoints = 1000;
  GetParam().run(often, {});
  expect_same_run(undisturbed, finished_run(often.run_dir), "with a checkpoint after every batch");

  const std::vector<std::string> names = CheckpointFolder(fs::path(often.run_dir) / "checkpoints").names();
  ASSERT_GT(names.size(), 5u);
  for (const std::string& name : names) {
    const fs::path copy = folder_ / ("from_" + name);
    fs::copy(often.run_dir, copy, fs::copy_options::recursive);
    RunOptions resumed;
    resumed.resume = copy / "checkpoints" / name;
    resumed.checkpoint_minutes = 1e6;
    GetParam().run(resumed, {});
    expect_same_run(undisturbed, finished_run(copy), "resumed from " + name);
    if (HasFatalFailure()) return;
    fs::remove_all(copy);
  }

  const RunOptions other = at("other");
  GetParam().run_with_another_seed(other);
  EXPECT_NE(finished_run(other.run_dir).lines, undisturbed.lines) << "a cold start from another seed";
}

TEST_P(ResumeTest, AfterEverySignalEndsAsIfNeverStopped) {
  const RunOptions whole = at("whole");
  GetParam().run(whole, {});
  const FinishedRun undisturbed = finished_run(whole.run_dir);

  // The same command again and again, each time stopped a little later.
  const RunOptions stopped = at("stopped");
  int stops = 0;
  for (int limit = 2; limit < 1000; limit += 2) {
    int calls = 0;
    try {
      GetParam().run(stopped, [&](std::string_view, int64_t, int64_t) {
        if (++calls > limit) throw Interrupted(SIGTERM);
      });
      break;
    } catch (const Interrupted&) {
      stops += 1;
    }
  }
  EXPECT_GT(stops, 1);
  expect_same_run(undisturbed, finished_run(stopped.run_dir), "stopped again and again");
}

// As an earlier program would have written it.
TEST(Resume, RefusesACheckpointOfAnotherSchemaByItsNumber) {
  const support::TemporaryFolder place;
  const Job host = all_jobs().front();
  RunOptions whole;
  whole.run_dir = place / "whole";
  host.run(whole, {});
  const CheckpointFolder folder(fs::path(whole.run_dir) / "checkpoints");
  const std::string name = folder.names().back();
  const Checkpoint newest = read_checkpoint(folder.path() / name);
  std::vector<CheckpointTensor> tensors;
  for (const TensorEntry& entry : newest.header.tensors) tensors.push_back({entry, newest.bytes_of(entry)});
  nlohmann::ordered_json manifest = newest.manifest;
  for (const char* checksum : {"tensor_crc32c", "crc32c"}) manifest.erase(checksum);
  manifest["version"] = 1;
  folder.remove(name);
  folder.write(name, tensors, manifest);
  EXPECT_ERROR(host.run(whole, {}), Error, "schema version 1", "reads 2", "--restart fresh");
}

std::string name_of(const ::testing::TestParamInfo<Job>& info) {
  std::string name;
  for (const char c : info.param.name) name += std::isalnum(c) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Jobs, ResumeSlow, ::testing::ValuesIn(all_jobs()), name_of);
INSTANTIATE_TEST_SUITE_P(Jobs, ResumeTest, ::testing::ValuesIn(all_jobs()), name_of);

}  // namespace
}  // namespace espalier::train
