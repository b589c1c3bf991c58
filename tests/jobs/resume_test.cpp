// A run that was stopped at any moment and resumed ends bit for bit where one that was not does.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/jobs/linet.h"
#include "espalier/jobs/population.h"
#include "espalier/jobs/ppo.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "espalier/train/control/recording.h"
#include "tests/support/finished_run.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::jobs {
using namespace train;
namespace {

namespace fs = std::filesystem;
using support::expect_same_run;
using support::finished_run;
using support::FinishedRun;

PopulationConfig small_population_job() {
  PopulationConfig options;
  options.source.synthetic_train = 60;
  options.source.synthetic_test = 20;
  options.source.synthetic_size = {8, 8};
  options.lanes = 3;
  options.epochs = 6;
  options.batch = 18;
  options.crop_pad = 1;
  options.devices = {parse_device("cpu")};
  options.controller = "random";
  options.embargo = 1;
  return options;
}

LinetConfig small_linet_job() {
  LinetConfig options;
  options.device = parse_device("cpu");
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

// Long and fast enough that streams are frozen on the way, with the weights of an epoch before.
LinetConfig freezing_linet_job() {
  LinetConfig options = small_linet_job();
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = 0.3;
  options.schedule = RateCurve::kConstant;
  options.epochs = 7;
  options.modality_start = 1;
  options.modality_ramp = 2;
  options.balance = 0.01;
  return options;
}

LinetConfig espalier_linet_job() {
  LinetConfig options = small_linet_job();
  options.rules = linet::LinetRules::kEspalier;
  return options;
}

PpoConfig small_ppo_job() {
  PpoConfig options;
  options.population = small_population_job();
  options.population.controller = "none";  // one for all episodes is named beside it
  options.population.lanes = 4;
  options.population.epochs = 5;
  options.population.batch = 7;
  options.population.plan = data::PlanKind::kSplit;
  options.population.devices = {parse_device("cpu"), parse_device("cpu")};
  options.rounds = 2;
  options.policy.encoder_size = 8;
  options.policy.hidden_size = 8;
  return options;
}

// A recording for the population, whose last action is not possible.
std::string small_recording() {
  static const support::TemporaryFolder folder;
  const std::string file = folder / "recording.jsonl";
  const SeedAction plant{.op = SeedOp::kGerminate, .slot = 2, .blueprint = 0, .steps = 3};
  Recording recording{.host = "cifar_baseline",
                      .slots = {"r0c0", "r0c1", "r0c2", "r1c0", "r1c1", "r1c2"},
                      .blueprints = {"norm", "conv_light"},
                      .lanes = 1,
                      .episodes = 1,
                      .episode_length = 6};
  recording.networks = {
      {.actions = {{1, plant}, {3, {.op = SeedOp::kPrune, .slot = 2}}, {5, plant}},
       .seeds = {{.slot = 1, .blueprint = 1, .amplitude = 0.5f},
                 {.slot = 4, .blueprint = 0, .blend_operator = BlendOperator::kGate, .amplitude = 1}}}};
  std::ofstream(file) << text_of(recording);
  return file;
}

// One kind of job: runs it with these options of the run, and this progress.
struct Job {
  std::string name;
  std::function<void(const run::RunConfig&, const Progress&)> run;
  std::function<void(const run::RunConfig&)> run_with_another_seed;

  friend std::ostream& operator<<(std::ostream& stream, const Job& job) { return stream << job.name; }
};

// flags: of the job, with the configuration inside that has the seed.
template <class Flags, class Run>
Job job_of(const std::string& name, Flags flags, JobConfig& (*config)(Flags&), const Run& run) {
  const auto start = [run](Flags own, const run::RunConfig& told, const Progress& progress) {
    own.run = told;
    run(own.job(), progress);
  };
  Flags seeded = flags;
  config(seeded).seed = 77;
  return {name, [=](const run::RunConfig& told, const Progress& progress) { start(flags, told, progress); },
          [=](const run::RunConfig& told) { start(seeded, told, {}); }};
}

JobConfig& config_of_host(cli::HostFlags& flags) {
  return flags.population;
}
JobConfig& config_of_population(cli::PopulationFlags& flags) {
  return flags.population;
}
JobConfig& config_of_linet(cli::LinetFlags& flags) {
  return flags.linet;
}
JobConfig& config_of_ppo(cli::PpoFlags& flags) {
  return flags.ppo.population;
}

std::vector<Job> all_jobs() {
  const auto population = [](const PopulationJob& job, const Progress& progress) {
    PopulationEvents events;
    events.progress = progress;
    run_population_job(job, events);
  };
  const auto linet = [](const LinetJob& job, const Progress& progress) {
    LinetEvents events;
    events.progress = progress;
    run_linet_job(job, events);
  };
  const auto ppo = [](const PpoJob& job, const Progress& progress) {
    PpoEvents events;
    events.progress = progress;
    run_ppo_job(job, events);
  };
  cli::HostFlags one;
  one.population = small_population_job();
  one.population.lanes = 1;
  one.population.host = "cifar_wide";
  one.population.controller = "none";
  one.device = parse_device("cpu");
  one.population.epochs = 2;
  // A rate at which lanes fail and are rolled back, some of them for good; nothing holds their gradients
  // down.
  PopulationConfig failing = small_population_job();
  failing.learning_rate = 100;
  failing.clip = 0;
  failing.epochs = 8;
  failing.devices = {parse_device("cpu"), parse_device("cpu")};
  // Whatever rises is taken for a collapse, with seeds in blends or not.
  PopulationConfig governed = small_population_job();
  governed.lanes = 4;
  governed.epochs = 14;
  governed.learning_rate = 0.4;
  governed.gates.min_training_steps = 0;
  governed.governor.ratio = 1;
  governed.governor.spread = 0;
  governed.devices = {parse_device("cpu"), parse_device("cpu")};
  // Steps that end in the middle of a pass and cross into the next.
  PopulationConfig in_steps = small_population_job();
  in_steps.batches_per_step = 4;
  in_steps.seed_warm_up = 5;
  in_steps.seed_schedule = RateCurve::kLinear;
  // Steps are not validated, or on a part of the split.
  PopulationConfig sparse = small_population_job();
  sparse.validate_every = 2;
  sparse.validation_parts = 3;
  sparse.validation_batch = 4;
  // Who is given up depends on roundings; of so many lanes about half are, and hardly ever all or none.
  PopulationConfig sparse_and_failing = failing;
  sparse_and_failing.lanes = 12;
  sparse_and_failing.epochs = 10;
  sparse_and_failing.validate_every = 3;
  PpoConfig sparse_ppo = small_ppo_job();
  sparse_ppo.population.validate_every = 3;
  PopulationConfig fixed = small_population_job(), replayed = small_population_job();
  fixed.controller = "static:" + small_recording();
  replayed.controller = "replay:" + small_recording();
  PpoConfig by_chance = small_ppo_job();
  by_chance.controller = "random";
  by_chance.population.devices = {parse_device("cpu")};
  by_chance.population.batches_per_step = 2;
  const auto as_population = [](const PopulationConfig& config) {
    cli::PopulationFlags flags;
    flags.population = config;
    return flags;
  };
  const auto as_linet = [](const LinetConfig& config) {
    cli::LinetFlags flags;
    flags.linet = config;
    return flags;
  };
  const auto as_ppo = [](const PpoConfig& config) {
    cli::PpoFlags flags;
    flags.ppo = config;
    return flags;
  };
  return {job_of("host", one, config_of_host, population),
          job_of("population", as_population(small_population_job()), config_of_population, population),
          job_of("population in steps", as_population(in_steps), config_of_population, population),
          job_of("population, validated now and then and by parts", as_population(sparse),
                 config_of_population, population),
          job_of("population that fails, validated now and then", as_population(sparse_and_failing),
                 config_of_population, population),
          job_of("population, static", as_population(fixed), config_of_population, population),
          job_of("population, replay", as_population(replayed), config_of_population, population),
          job_of("population that fails", as_population(failing), config_of_population, population),
          job_of("population that is governed", as_population(governed), config_of_population, population),
          job_of("linet", as_linet(freezing_linet_job()), config_of_linet, linet),
          job_of("linet, espalier", as_linet(espalier_linet_job()), config_of_linet, linet),
          job_of("ppo", as_ppo(small_ppo_job()), config_of_ppo, ppo),
          job_of("ppo, validated now and then", as_ppo(sparse_ppo), config_of_ppo, ppo),
          job_of("ppo, random", as_ppo(by_chance), config_of_ppo, ppo)};
}

class ResumeTest : public ::testing::TestWithParam<Job> {
 protected:
  run::RunConfig at(const std::string& name) const {
    run::RunConfig options;
    options.run_dir = folder_ / name;
    options.checkpoint_minutes = 1e6;
    return options;
  }

  support::TemporaryFolder folder_;
};

class ResumeSlow : public ResumeTest {};

TEST_P(ResumeSlow, FromEveryBatchEndsAsIfNeverStopped) {
  run::RunConfig whole = at("whole");
  GetParam().run(whole, {});
  const FinishedRun undisturbed = finished_run(whole.run_dir);

  run::RunConfig often = at("often");
  often.checkpoint_minutes = 0;
  often.keep_checkpoints = 1000;
  GetParam().run(often, {});
  expect_same_run(undisturbed, finished_run(often.run_dir), "with a checkpoint after every batch");

  const std::vector<std::string> names =
      run::CheckpointFolder(fs::path(often.run_dir) / "checkpoints").names();
  ASSERT_GT(names.size(), 5u);
  for (const std::string& name : names) {
    const fs::path copy = folder_ / ("from_" + name);
    fs::copy(often.run_dir, copy, fs::copy_options::recursive);
    run::RunConfig resumed;
    resumed.resume = copy / "checkpoints" / name;
    resumed.checkpoint_minutes = 1e6;
    GetParam().run(resumed, {});
    expect_same_run(undisturbed, finished_run(copy), "resumed from " + name);
    if (HasFatalFailure()) return;
    fs::remove_all(copy);
  }

  const run::RunConfig other = at("other");
  GetParam().run_with_another_seed(other);
  EXPECT_NE(finished_run(other.run_dir).lines, undisturbed.lines) << "a cold start from another seed";
}

TEST_P(ResumeTest, AfterEverySignalEndsAsIfNeverStopped) {
  const run::RunConfig whole = at("whole");
  GetParam().run(whole, {});
  const FinishedRun undisturbed = finished_run(whole.run_dir);

  // The same command again and again, each time stopped a little later.
  const run::RunConfig stopped = at("stopped");
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

// Whenever checkpoints are written besides: the best one is that of the best epoch, or round, and of no
// other.
TEST_P(ResumeTest, KeepsTheBestStateWithItsOwnScore) {
  run::RunConfig rare = at("rare"), often = at("often");
  rare.keep_checkpoints = often.keep_checkpoints = 1;
  often.checkpoint_minutes = 0;
  for (const run::RunConfig& options : {rare, often}) {
    GetParam().run(options, {});
    // What the lines say: the best score, and how long the file was when its epoch had ended.
    double best_score = -1e300;
    size_t bytes = 0, best_bytes = 0;
    std::ifstream in(fs::path(options.run_dir) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      bytes += line.size() + 1;
      const auto json = nlohmann::ordered_json::parse(line);
      const char* key = json["kind"] == "round" ? "charts/episodic_return" : "validation_accuracy";
      if ((json["kind"] != "epoch" && json["kind"] != "round") || !json[key].is_number()) continue;
      if (json[key].get<double>() <= best_score) continue;
      best_score = json[key];
      best_bytes = bytes;
    }
    const run::CheckpointFolder folder(fs::path(options.run_dir) / "checkpoints");
    const auto best = folder.best();
    ASSERT_TRUE(best) << options.run_dir;
    const run::Checkpoint kept = run::read_checkpoint(folder.path() / *best);
    EXPECT_EQ(kept.manifest["score"].get<double>(), best_score);
    EXPECT_EQ(kept.manifest["metrics_bytes"].get<size_t>(), best_bytes);
    EXPECT_LE(folder.names().size(), 2u);
  }
}

// The newest checkpoint of a run, with another manifest.
void change_newest(const fs::path& run, const std::function<void(nlohmann::ordered_json&)>& change) {
  const run::CheckpointFolder folder(run / "checkpoints");
  const std::string name = folder.names().back();
  const run::Checkpoint newest = run::read_checkpoint(folder.path() / name);
  std::vector<run::CheckpointTensor> tensors;
  for (const TensorEntry& entry : newest.header.tensors) tensors.push_back({entry, newest.bytes_of(entry)});
  nlohmann::ordered_json manifest = newest.manifest;
  for (const char* checksum : {"tensor_crc32c", "crc32c"}) manifest.erase(checksum);
  change(manifest);
  folder.remove(name);
  folder.write(name, tensors, manifest);
}

// The freezing job is there to be resumed from before, amid and after that.
TEST(Resume, IsTriedWithStreamsThatGetTheirBestWeightsBack) {
  const support::TemporaryFolder place;
  int64_t first_frozen = 0, epochs = 0;
  LinetEvents events;
  events.epoch_done = [&](const LinetEpoch& epoch) {
    epochs = epoch.epoch;
    if (first_frozen == 0 && !epoch.frozen.empty()) first_frozen = epoch.epoch;
  };
  run_linet_job({.linet = freezing_linet_job(), .run = {.run_dir = place / "run"}}, events);
  EXPECT_GT(first_frozen, 0);
  EXPECT_LT(first_frozen, epochs);
}

// The jobs whose networks collapse do: there are states to go back to, bars and networks given up.
TEST(Resume, IsTriedWithNetworksThatCollapse) {
  const support::TemporaryFolder place;
  for (const Job& job : all_jobs()) {
    if (!job.name.starts_with("population that")) continue;
    SCOPED_TRACE(job.name);
    run::RunConfig told;
    told.run_dir = place / job.name;
    told.checkpoint_minutes = 1e6;
    job.run(told, {});
    int64_t collapses = 0, rolled_back = 0, retired = 0, barred = 0;
    for (const nlohmann::ordered_json& line : finished_run(told.run_dir).lines) {
      if (line["kind"] != "lane") continue;
      collapses += line.contains("collapse");
      rolled_back += line["outcome"] == "rolled_back";
      retired += line["outcome"] == "retired";
      barred += line.contains("barred");
    }
    EXPECT_GT(collapses, 0);
    EXPECT_GT(rolled_back, 0);
    if (job.name == "population that is governed") {
      EXPECT_GT(barred, 0);
    }
    if (job.name == "population that fails, validated now and then") {
      EXPECT_GT(retired, 0);
    }
  }
}

TEST(Resume, RefusesKeysToChangeThatNothingHas) {
  const support::TemporaryFolder place;
  const Job host = all_jobs().front();
  run::RunConfig told;
  told.run_dir = place / "run";
  host.run(told, {});
  told.allow_change = {"epohcs"};
  EXPECT_ERROR(host.run(told, {}), UsageError, "--allow-change 'epohcs'", "no key 'epohcs'", "epochs");
  told.allow_change = {"epochs", "threads", "run-dir"};
  EXPECT_NO_THROW(host.run(told, {}));
}

// As an earlier program would have written it.
TEST(Resume, RefusesACheckpointOfAnotherSchemaByItsNumber) {
  const support::TemporaryFolder place;
  const Job host = all_jobs().front();
  run::RunConfig whole;
  whole.run_dir = place / "whole";
  host.run(whole, {});
  change_newest(whole.run_dir, [](nlohmann::ordered_json& manifest) { manifest["version"] = 1; });
  EXPECT_ERROR(host.run(whole, {}), Error, "schema version 1", "reads 5", "--restart fresh");
}

std::string name_of(const ::testing::TestParamInfo<Job>& info) {
  std::string name;
  for (const char c : info.param.name) name += std::isalnum(c) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Jobs, ResumeSlow, ::testing::ValuesIn(all_jobs()), name_of);
INSTANTIATE_TEST_SUITE_P(Jobs, ResumeTest, ::testing::ValuesIn(all_jobs()), name_of);

}  // namespace
}  // namespace espalier::jobs
