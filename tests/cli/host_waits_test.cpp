// How often the host waits for the device in a decision step (an epoch, validation, a decision): once, for
// the epoch's one copy, whatever grows. The CPU has nothing to wait for; there the tests see that the
// episodes which a GPU is audited with let seeds grow.
#include <gtest/gtest.h>

#include <functional>

#include "espalier/cli/commands/profile/rehearsed_episode.h"
#include "espalier/train/step/deterministic_scope.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/audit/waits.h"
#include "tests/support/cuda.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::cli {
namespace {

using train::testing::germinate;
using train::testing::small_ppo;
using train::testing::small_shards;

constexpr int64_t kLanes = 4, kEpisode = 24;
// All from the third on: before it the heuristic, which waits for a plateau, cannot plant.
constexpr int kSteps = 21;

train::PpoConfig job_on(const char* device, const char* controller, bool is_half) {
  train::PpoConfig options = small_ppo(kLanes);
  options.population.devices = {parse_device(device)};
  options.population.epochs = kEpisode;
  options.controller = controller;
  options.population.precision = is_half ? train::Precision::kBf16 : train::Precision::kFp32;
  return options;
}

// Takes two seeds through all stages by GATE and ADD, and one that is pruned, in different lanes at different
// times; the same in every episode.
std::shared_ptr<train::testing::ScriptedController> walk_of_all_stages() {
  auto controller = std::make_shared<train::testing::ScriptedController>();
  const auto seed = [&](int64_t lane, int64_t first, const SeedAction& planted) {
    controller->script[{lane, first}] = planted;
    for (const int64_t later : {3, 6})
      controller->script[{lane, first + later}] = {.op = SeedOp::kAdvance, .slot = planted.slot};
    controller->script[{lane, first + 9}] = {.op = SeedOp::kFossilize, .slot = planted.slot};
  };
  seed(0, 8, germinate(0, train::testing::kConvLight, 2, BlendOperator::kGate));
  seed(1, 9, germinate(1, train::testing::kConvSmall, 2));
  controller->script[{2, 10}] = germinate(2, train::testing::kConvLight, 2);
  controller->script[{2, 15}] = {.op = SeedOp::kPrune, .slot = 2, .steps = 2};
  return controller;
}

watch::SyncReport audited(c10::Device device, int steps, const std::function<void()>& step) {
  return watch::read_waits(*watch::record_steps(device, "test", steps, step), device, steps);
}

// The steps that are audited, over an episode that was rehearsed.
void play(RehearsedEpisode& episode, c10::Device device, const std::string& what) {
  episode.rehearse(kSteps);
  if (device.is_cpu()) {
    for (int i = 0; i < kSteps; ++i) episode.step();
    return;
  }
  const watch::SyncReport report = audited(device, kSteps, [&] { episode.step(); });
  SCOPED_TRACE(what + ": " + episode.text() + "\n" + report.text());
  ASSERT_GT(report.num_calls, 0);
  EXPECT_EQ(report.num_waits(), kSteps);
  EXPECT_EQ(report.num_copies_back, kSteps);
  for (const watch::HostWait& wait : report.waits) EXPECT_EQ(wait.place, "copy of the epoch") << wait.call;
}

void play_all_stages(const char* device, bool amp) {
  const train::PpoConfig options = job_on(device, "none", amp);
  train::PopulationTrainer environments(options.population, small_shards(options),
                                        train::policy_device_of(options), train::OnFailure::kRollBack);
  const auto controller = walk_of_all_stages();
  RehearsedEpisode episode(environments, *controller);
  play(episode, environments.shard(0).step().device(), amp ? "all stages, bf16" : "all stages, fp32");
  // GERMINATED is over before an epoch begins.
  for (const SeedStage stage : {SeedStage::kTraining, SeedStage::kBlending, SeedStage::kHolding,
                                SeedStage::kFossilized, SeedStage::kEmbargoed})
    EXPECT_GT(episode.seeds_in(stage), 0) << name_of(stage) << ": " << episode.text();
  EXPECT_TRUE(episode.text().ends_with("; planted 3")) << episode.text();
}

void play_under(const char* device, const char* name, bool amp) {
  const train::PpoConfig options = job_on(device, name, amp);
  train::PpoTrainer trainer(options, small_shards(options));
  RehearsedEpisode episode(trainer.environments(), trainer.controller());
  play(episode, trainer.environments().shard(0).step().device(),
       std::string(name) + (amp ? ", bf16" : ", fp32"));
  EXPECT_FALSE(episode.text().ends_with("; planted 0")) << name << ": " << episode.text();
  EXPECT_GT(episode.seeds_in(SeedStage::kTraining), 0) << name << ": " << episode.text();
}

TEST(HostWaits, AreAuditedWithSeedsOfEveryStage) {
  play_all_stages("cpu", false);
}

TEST(HostWaits, AreAuditedWhereRulesAndThePolicyPlant) {
  for (const char* controller : {"random", "heuristic", "ppo"}) play_under("cpu", controller, false);
}

class HostWaitsCuda : public ::testing::Test {
 protected:
  void SetUp() override { ESPALIER_SKIP_WITHOUT_CUDA(); }
};

TEST_F(HostWaitsCuda, AreOneAStepWithSeedsOfEveryStage) {
  for (const bool amp : {false, true}) play_all_stages("cuda:0", amp);
}

TEST_F(HostWaitsCuda, AreOneAStepUnderRules) {
  for (const char* controller : {"random", "heuristic"})
    for (const bool amp : {false, true}) play_under("cuda:0", controller, amp);
}

TEST_F(HostWaitsCuda, AreOneAStepUnderThePolicy) {
  for (const bool amp : {false, true}) play_under("cuda:0", "ppo", amp);
}

// Where nothing is timed, not even the first seed of its kind, whose storage is made then, waits.
TEST_F(HostWaitsCuda, AreOneAStepAlsoWhereASeedIsTheFirstOfItsKind) {
  constexpr int kBare = 6, kGrowing = 16;
  const train::DeterministicScope deterministic(true);
  const train::PpoConfig options = job_on("cuda:0", "none", false);
  train::PopulationTrainer environments(options.population, small_shards(options),
                                        train::policy_device_of(options), train::OnFailure::kRollBack);
  const auto controller = walk_of_all_stages();
  environments.begin_episode(0);
  for (int i = 0; i < kBare; ++i)
    environments.train_epoch(*controller);  // bare: the script begins after them
  const watch::SyncReport report = audited(environments.shard(0).step().device(), kGrowing,
                                           [&] { environments.train_epoch(*controller); });
  ASSERT_GT(report.num_calls, 0) << report.text();
  EXPECT_EQ(report.num_waits(), kGrowing) << report.text();
  EXPECT_EQ(report.num_copies_back, kGrowing) << report.text();
  EXPECT_EQ(environments.shard(0).lifecycle().at(0, 0).stage, SeedStage::kFossilized);
}

// A round as it is trained: one wait for every step, and one for the update's diagnostics.
TEST_F(HostWaitsCuda, AreOneAStepAndOneAnUpdateInARound) {
  const train::DeterministicScope deterministic(true);
  const train::PpoConfig options = job_on("cuda:0", "ppo", false);
  train::PpoTrainer trainer(options, small_shards(options));
  for (int round = 0; round < 2; ++round) trainer.train_round();
  const watch::SyncReport report =
      audited(trainer.environments().shard(0).step().device(), 1, [&] { trainer.train_round(); });
  ASSERT_GT(report.num_calls, 0) << report.text();
  EXPECT_EQ(report.num_waits(), kEpisode + 1) << report.text();
}

}  // namespace
}  // namespace espalier::cli
