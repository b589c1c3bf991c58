#include "espalier/train/population/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/jobs/ppo.h"
#include "tests/support/host_reads.h"
#include "tests/support/message.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::train {
namespace {

using testing::epochs_of_round;
using testing::expect_same_epoch;
using testing::small_environments;
using testing::small_ppo;
using testing::small_shards;

// Epochs of one round under the controller of that name.
std::vector<EpochRecord> play(PopulationTrainer& environments, const PpoConfig& options,
                              const std::string& name, int64_t round) {
  const auto controller = rule_controller(name, options, environments.population(0));
  environments.begin_episode(round);
  controller->begin_episode(round);
  std::vector<EpochRecord> epochs;
  for (int64_t step = 0; step < environments.episode_length(); ++step)
    epochs.push_back(environments.train_epoch(*controller));
  return epochs;
}

TEST(PopulationTrainer, GiveOnTwoDevicesWhatTheyGiveOnOne) {
  for (const data::PlanKind plan : {data::PlanKind::kSplit, data::PlanKind::kOwn}) {
    SCOPED_TRACE(static_cast<int>(plan));
    PpoConfig one = small_ppo(3);  // 2 and 1 of them
    one.population.plan = plan;
    PpoConfig two = one;
    two.population.devices = {parse_device("cpu"), parse_device("cpu")};
    PpoTrainer together(one, small_shards(one)), apart(two, small_shards(two));
    EXPECT_EQ(apart.environments().num_shards(), 2u);
    for (int round = 0; round < 2; ++round) {
      std::vector<EpochRecord> epochs[2];
      std::optional<std::array<double, policy::kNumDiagnostics>> learned[2];
      for (const int i : {0, 1}) {
        PpoTrainer& trainer = i == 0 ? together : apart;
        learned[i] =
            trainer.train_round({}, [&](int64_t, const EpochRecord& epoch) { epochs[i].push_back(epoch); })
                .diagnostics;
      }
      for (size_t step = 0; step < epochs[0].size(); ++step)
        expect_same_epoch(epochs[0][step], epochs[1][step],
                          "round " + std::to_string(round) + ", step " + std::to_string(step));
      EXPECT_EQ(learned[0], learned[1]);
    }
  }
}

TEST(PopulationTrainer, BeginEveryRoundAnewWhateverGrewBefore) {
  PpoConfig options = small_ppo(2);
  options.population.epochs = 8;
  PopulationTrainer used = small_environments(options), fresh = small_environments(options);
  const auto first = play(used, options, "random", 0);
  const auto has_seed = [](const EpochRecord& epoch) {
    return std::ranges::any_of(epoch.lanes, [](const LaneRecord& lane) {
      return std::ranges::any_of(lane.slots,
                                 [](const SlotReport& slot) { return holds_seed(slot.state.stage); });
    });
  };
  EXPECT_TRUE(std::ranges::any_of(first, has_seed));  // else nothing had to be cleared
  const auto second = play(used, options, "random", 1), alone = play(fresh, options, "random", 1);
  for (size_t step = 0; step < second.size(); ++step)
    expect_same_epoch(second[step], alone[step], "step " + std::to_string(step));
  EXPECT_NE(first[0].lanes[0].trained.loss, second[0].lanes[0].trained.loss);
  EXPECT_NE(first[0].lanes[0].trained.loss, first[0].lanes[1].trained.loss);
}

TEST(PopulationTrainer, ReadEachEpochOnce) {
  const PpoConfig options = small_ppo(2);
  PopulationTrainer environments = small_environments(options);
  const support::RangeCounter reads("copy of the epoch");
  play(environments, options, "random", 0);
  EXPECT_EQ(reads.count(), options.population.epochs);
}

TEST(PopulationTrainer, ArePlannedForTheDeviceThatTheyLiveOn) {
  PpoConfig options = small_ppo(6);
  options.population.validation_batch = options.population.batch;  // so that training takes most
  const auto bytes_of = [&](size_t shards_of_cpu, const char* controller) {
    options.population.devices.assign(shards_of_cpu, parse_device("cpu"));
    options.controller = controller;
    const std::vector<ShardSetup> shards = small_shards(options);
    const auto starts =
        check_devices(options.population, shards, jobs::needs_of(options, space_of(shards.front())));
    EXPECT_EQ(starts.size(), 1u) << "each device once";
    return starts.front().plan.total_bytes();
  };
  const int64_t grown = bytes_of(1, "random");
  EXPECT_GT(grown, bytes_of(1, "none"));
  EXPECT_GT(bytes_of(1, "ppo"), grown) << "the policy and its rollout";
  EXPECT_EQ(grown, bytes_of(2, "random")) << "they share it";
  options.max_seeds = 1;
  EXPECT_LT(bytes_of(1, "random"), grown);
  options.max_seeds = 3;
  options.slots = {"r1c0"};
  EXPECT_LT(bytes_of(1, "random"), grown);
  options.slots = {};
  options.population.lanes = 3;
  EXPECT_LT(bytes_of(1, "random"), grown);
}

TEST(PopulationTrainer, NameTheFlagWhereABatchIsTooLarge) {
  PpoConfig options = small_ppo(2);
  options.population.batch = 100;
  EXPECT_ERROR(small_environments(options), UsageError, "--batch 100", "2 networks", "40 samples");
}

TEST(PopulationTrainer, RefuseMoreDevicesThanNetworksAndSlotsThatAreNone) {
  PpoConfig options = small_ppo(2);
  options.population.devices = {parse_device("cpu"), parse_device("cpu"), parse_device("cpu")};
  EXPECT_ERROR(PpoTrainer(options, small_shards(options)), UsageError, "--devices cpu,cpu,cpu", "2");
  options.population.devices = {parse_device("cpu")};
  options.slots = {"r0c0", "r7c7"};
  EXPECT_ERROR(PpoTrainer(options, small_shards(options)), UsageError, "--slots", "'r7c7'", "r1c0");
}

TEST(PopulationTrainer, KeepSeedsWithinTheSlotsAndTheNumberThatAreAllowed) {
  for (const char* name : {"random", "ppo"}) {
    SCOPED_TRACE(name);
    PpoConfig options = small_ppo(4);
    options.controller = name;
    options.population.epochs = 10;
    options.slots = {"r0c1", "r1c0"};
    options.max_seeds = 1;
    PpoTrainer trainer(options, small_shards(options));
    int64_t num_seeds = 0;
    for (const EpochRecord& epoch : epochs_of_round(trainer))
      for (const LaneRecord& lane : epoch.lanes) {
        int64_t held = 0;
        for (const SlotReport& slot : lane.slots) held += holds_seed(slot.state.stage);
        EXPECT_LE(held, 1);
        EXPECT_EQ(lane.slots[0].state.num_seeds, 0);  // r0c0
        num_seeds += held;
      }
    EXPECT_GT(num_seeds, 0);
  }
}

}  // namespace
}  // namespace espalier::train
