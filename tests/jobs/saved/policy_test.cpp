#include "espalier/jobs/saved/policy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "espalier/jobs/saved/networks.h"
#include "espalier/train/control/policy_file.h"
#include "tests/support/finished_run.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::jobs {
using namespace train;
namespace {

class SavedPolicyTest : public ::testing::Test {
 protected:
  SavedPolicyTest() {
    cli::PpoFlags flags;
    flags.ppo.population = networks();
    flags.ppo.population.plan = data::PlanKind::kSplit;
    flags.ppo.population.lanes = 2;
    flags.ppo.rounds = 1;
    flags.ppo.slots = {"r0c0", "r0c1"};
    flags.ppo.max_seeds = 2;
    flags.ppo.policy.encoder_size = 8;
    flags.ppo.policy.hidden_size = 8;
    flags.run.run_dir = folder_ / "ppo";
    flags.save = policy_;
    run_ppo_job(flags.job(), {});
  }

  static PopulationConfig networks() {
    PopulationConfig options;
    options.source.synthetic_train = 60;
    options.source.synthetic_test = 20;
    options.source.synthetic_size = {8, 8};
    options.lanes = 3;
    options.epochs = 6;
    options.batch = 9;
    options.crop_pad = 1;
    options.embargo = 1;
    options.devices = {parse_device("cpu")};
    return options;
  }

  PopulationJob job(const std::function<void(PopulationConfig&)>& change = {}) {
    cli::PopulationFlags flags;
    flags.population = networks();
    flags.population.controller = "ppo:" + policy_;
    if (change) change(flags.population);
    flags.run.run_dir = folder_ / "run";
    flags.run.checkpoint_minutes = 0;
    return flags.job();
  }

  support::TemporaryFolder folder_;
  std::string policy_ = folder_ / "policy.safetensors";
};

TEST_F(SavedPolicyTest, GrowsNewNetworksWithinItsSlots) {
  run_population_job(job(), {});
  int planted = 0;
  std::ifstream metrics(folder_ / "run/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);)
    if (line.find("GERMINATE") != line.npos) planted += 1;
  EXPECT_GT(planted, 0);
  for (const grow::GrownNetwork& network : saved_networks(folder_ / "run"))
    for (const grow::SeedDescription& seed : network.description.seeds)
      EXPECT_TRUE(seed.slot == "r0c0" || seed.slot == "r0c1") << seed.slot;
}

TEST_F(SavedPolicyTest, IsRefusedByTheFlagThatDiffers) {
  EXPECT_ERROR(run_population_job(job([](PopulationConfig& options) { options.epochs = 7; }), {}), UsageError,
               "--epochs 7", policy_, "learned with 6", "give --epochs 6");
  EXPECT_ERROR(run_population_job(
                   job([](PopulationConfig& options) { options.gates.mode = grow::GateMode::kStrict; }), {}),
               UsageError, "--gates strict", "give --gates permissive");
  EXPECT_ERROR(run_population_job(job([](PopulationConfig& options) { options.embargo = 2; }), {}),
               UsageError, "--embargo 2", "give --embargo 1");
  EXPECT_ERROR(
      run_population_job(job([](PopulationConfig& options) { options.gates.min_training_steps = 1; }), {}),
      UsageError, "--gate-training-steps 1", "give --gate-training-steps 3");
  EXPECT_ERROR(
      run_population_job(job([](PopulationConfig& options) { options.gates.max_gradient_norm = 2.5; }), {}),
      UsageError, "--gate-largest-norm 2.5", "give --gate-largest-norm 1000");
  EXPECT_ERROR(run_population_job(job([](PopulationConfig& options) { options.batches_per_step = 4; }), {}),
               UsageError, "--batches-per-step 4", "give --batches-per-step 0");
  EXPECT_ERROR(run_population_job(job([](PopulationConfig& options) { options.validate_every = 2; }), {}),
               UsageError, "--validate-every 2", "give --validate-every 1");
  EXPECT_ERROR(run_population_job(job([](PopulationConfig& options) { options.validation_parts = 2; }), {}),
               UsageError, "--validation-parts 2", "give --validation-parts 1");
  EXPECT_ERROR(run_population_job(job([](PopulationConfig& options) { options.controller = "ppo"; }), {}),
               UsageError, "--controller", "ppo:FILE", "'ppo'");
  EvaluateConfig evaluated;
  evaluated.population = networks();
  evaluated.controllers = {"ppo:" + policy_};
  evaluated.slots = {"r0c0", "r0c1"};
  const auto refused = [&] { return evaluate(evaluated, shards_of(evaluated, {}), {}); };
  EXPECT_ERROR(refused(), UsageError, "--max-seeds 3", "learned with 2");
  evaluated.max_seeds = 2;
  evaluated.population.telemetry_every = 4;
  EXPECT_ERROR(refused(), UsageError, "--telemetry-every 4", "give --telemetry-every 1");
  evaluated.population.telemetry_every = 1;
  evaluated.parameter_budget = 2;
  EXPECT_ERROR(refused(), UsageError, "--parameter-budget 2", "learned with 1");
  evaluated.parameter_budget = 1;
  evaluated.slots = {"r0c0"};
  EXPECT_ERROR(refused(), UsageError, "--slots r0c0", "give --slots r0c0,r0c1");
  evaluated.slots = {};
  std::vector<train::ShardSetup> richer = shards_of(evaluated, {});
  for (train::ShardSetup& shard : richer) {
    grow::Blueprint own = shard.blueprints.at(shard.blueprints.index_of("conv_small"));
    own.name = "own";
    shard.blueprints.add(own);
  }
  EXPECT_ERROR(evaluate(evaluated, std::move(richer), {}), UsageError, "conv_heavy,own", policy_);
  evaluated.population.host = "cifar_deep";
  EXPECT_ERROR(refused(), UsageError, "--host cifar_deep", "learned on r0c0");
}

// Of seeds that no gate asks about: train population has no flag for it.
TEST_F(SavedPolicyTest, SeesGradientNormsAsOftenAsWhenItLearned) {
  for (const int64_t every : {1, 0}) {
    SCOPED_TRACE("every " + std::to_string(every));
    TensorFile file = read_tensors(policy_);
    file.metadata["telemetry_every"] = std::to_string(every);
    file.metadata["episode_length"] = "12";
    file.metadata["gate_training_steps"] = "0";
    write_tensors(policy_, {file.tensors.begin(), file.tensors.end()}, file.metadata);
    PopulationJob grown = job([](PopulationConfig& options) {
      options.lanes = 8;
      options.epochs = 12;
      options.gates.min_training_steps = 0;
    });
    grown.run.run_dir = folder_ / std::to_string(every);
    const std::filesystem::path lines = std::filesystem::path(grown.run.run_dir) / "metrics.jsonl";
    run_population_job(grown, {});
    int64_t blending = 0, told = 0;
    std::ifstream metrics(lines);
    for (std::string line; std::getline(metrics, line);) {
      const nlohmann::ordered_json read = nlohmann::ordered_json::parse(line);
      if (!read.contains("slots")) continue;
      for (const auto& seed : read["slots"]) {
        if (seed["stage"] != "BLENDING" || seed["blueprint"] == "noop") continue;
        blending += 1;
        told += !seed["gradient_norm"].is_null();
      }
    }
    EXPECT_GT(blending, 0);
    EXPECT_EQ(told > 0, every > 0) << told << " of " << blending;
  }
}

// What only strict gates ask for is compared where they are strict.
TEST_F(SavedPolicyTest, IsComparedInTheThresholdsThatItsGatesHave) {
  run_population_job(job([](PopulationConfig& options) { options.gates.min_improvement_points = 2; }), {});
  TensorFile file = read_tensors(policy_);
  EXPECT_FALSE(file.metadata.contains("gate_improvement"));
  file.metadata["gates"] = "strict";
  file.metadata["gate_contribution"] = "0.25";
  write_tensors(policy_, {file.tensors.begin(), file.tensors.end()}, file.metadata);
  EXPECT_ERROR(run_population_job(
                   job([](PopulationConfig& options) { options.gates.mode = grow::GateMode::kStrict; }), {}),
               UsageError, "--gate-contribution 0", "give --gate-contribution 0.25");
}

// Files from before their terms were kept.
TEST_F(SavedPolicyTest, IsComparedInWhatItsFileHas) {
  TensorFile file = read_tensors(policy_);
  for (const char* key :
       {"blueprints", "host_slots", "planted_slots", "max_seeds", "parameter_budget", "gates",
        "gate_training_steps", "gate_least_norm", "gate_largest_norm", "embargo", "episode_length",
        "batches_per_step", "validate_every", "validation_parts", "telemetry_every"})
    EXPECT_EQ(file.metadata.erase(key), 1u) << key;
  write_tensors(policy_, {file.tensors.begin(), file.tensors.end()}, file.metadata);
  run_population_job(job([](PopulationConfig& options) { options.epochs = 3; }), {});
  EXPECT_ERROR(run_population_job(job([](PopulationConfig& options) { options.host = "cifar_deep"; }), {}),
               UsageError, "--host cifar_deep", "8 slots", "hosts with 6");
}

TEST_F(SavedPolicyTest, GoesOnExactlyWhereTheRunWasStopped) {
  run_population_job(job(), {});
  const auto want = support::finished_run(folder_ / "run");
  // From every checkpoint that is left, the newest of which is the end.
  cli::PopulationFlags flags;
  flags.population = job().population;
  flags.run.run_dir = folder_ / "other";
  flags.run.checkpoint_minutes = 0;
  flags.run.keep_checkpoints = 1000;
  run_population_job(flags.job(), {});
  flags.run.resume = folder_ / "other/checkpoints/000000000009";
  flags.run.run_dir.clear();
  run_population_job(flags.job(), {});
  support::expect_same_run(support::finished_run(folder_ / "other"), want, "resumed in the second epoch");
}

}  // namespace
}  // namespace espalier::jobs
