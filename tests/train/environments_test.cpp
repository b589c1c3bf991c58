#include "espalier/train/environments.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/train/small_ppo.h"

namespace espalier::train {
namespace {

using testing::epochs_of_round;
using testing::expect_same_epoch;
using testing::small_environments;
using testing::small_ppo;
using testing::small_sites;

// Epochs of one round under the controller of that name.
std::vector<EpochRecord> play(Environments& environments, const PpoJobOptions& options,
                              const std::string& name, int64_t round) {
  const auto controller = rule_controller(name, options, environments.population(0));
  environments.begin_episode(round);
  controller->begin_episode(round);
  std::vector<EpochRecord> epochs;
  for (int64_t step = 0; step < environments.episode_length(); ++step)
    epochs.push_back(environments.train_epoch(*controller));
  return epochs;
}

TEST(Environments, GiveOnTwoDevicesWhatTheyGiveOnOne) {
  for (const char* plan : {"split", "own"}) {
    SCOPED_TRACE(plan);
    PpoJobOptions one = small_ppo(3);  // 2 and 1 of them
    one.population.plan = plan;
    PpoJobOptions two = one;
    two.population.devices = "cpu,cpu";
    PpoTrainer together(one, small_sites(one)), apart(two, small_sites(two));
    EXPECT_EQ(apart.environments().num_populations(), 2u);
    for (int round = 0; round < 2; ++round) {
      std::vector<EpochRecord> epochs[2];
      std::optional<std::array<double, policy::kNumDiagnostics>> learned[2];
      for (const int i : {0, 1}) {
        PpoTrainer& trainer = i == 0 ? together : apart;
        learned[i] =
            trainer
                .train_round({}, [&](int64_t, const EpochRecord& epoch,
                                     const std::vector<RewardTerms>&) { epochs[i].push_back(epoch); })
                .diagnostics;
      }
      for (size_t step = 0; step < epochs[0].size(); ++step)
        expect_same_epoch(epochs[0][step], epochs[1][step],
                          "round " + std::to_string(round) + ", step " + std::to_string(step));
      EXPECT_EQ(learned[0], learned[1]);
    }
  }
}

TEST(Environments, BeginEveryRoundAnewWhateverGrewBefore) {
  PpoJobOptions options = small_ppo(2);
  options.population.epochs = 8;
  Environments used = small_environments(options), fresh = small_environments(options);
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

TEST(Environments, ReadEachEpochOnce) {
  const PpoJobOptions options = small_ppo(2);
  Environments environments = small_environments(options);
  play(environments, options, "random", 0);
  EXPECT_EQ(environments.buffer().num_reads(), options.population.epochs);
}

TEST(Environments, ArePlannedForTheDeviceThatTheyLiveOn) {
  PpoJobOptions options = small_ppo(6);
  const auto bytes_of = [&](const std::string& devices, Growth growth) {
    options.population.devices = devices;
    const auto starts = check_devices(options.population, small_sites(options), growth);
    EXPECT_EQ(starts.size(), 1u) << "each device once";
    return starts.front().plan.total_bytes();
  };
  const int64_t grown = bytes_of("cpu", Growth::kSeeds);
  EXPECT_GT(grown, bytes_of("cpu", Growth::kNone));
  EXPECT_EQ(grown, bytes_of("cpu,cpu", Growth::kSeeds)) << "they share it";
  options.population.lanes = 3;
  EXPECT_LT(bytes_of("cpu", Growth::kSeeds), grown);
}

TEST(Environments, NameTheirOwnFlagWhereABatchIsTooLarge) {
  PpoJobOptions options = small_ppo(2);
  options.population.batch_flag = PpoJobOptions().population.batch_flag;
  options.population.batch = 100;
  EXPECT_ERROR(small_environments(options), UsageError, "--batch-per-env 100", "2 networks", "40 samples");
}

TEST(Environments, RefuseMoreDevicesThanNetworksAndSlotsThatAreNone) {
  PpoJobOptions options = small_ppo(2);
  options.population.devices = "cpu,cpu,cpu";
  EXPECT_ERROR(PpoTrainer(options, small_sites(options)), UsageError, "--devices cpu,cpu,cpu", "2");
  options.population.devices = "cpu";
  options.slots = "r0c0,r7c7";
  EXPECT_ERROR(PpoTrainer(options, small_sites(options)), UsageError, "--slots", "'r7c7'", "r1c0");
}

TEST(Environments, KeepSeedsWithinTheSlotsAndTheNumberThatAreAllowed) {
  for (const char* name : {"random", "ppo"}) {
    SCOPED_TRACE(name);
    PpoJobOptions options = small_ppo(4);
    options.controller = name;
    options.population.epochs = 10;
    options.slots = "r0c1,r1c0";
    options.max_seeds = 1;
    PpoTrainer trainer(options, small_sites(options));
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
