#include "espalier/train/control/recorded.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/train/control/recorder.h"
#include "espalier/train/population/episode_seed.h"
#include "tests/support/message.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::train {
namespace {

using namespace testing;

constexpr int64_t kEpisodes = 2, kLanes = 3, kLength = 14;

PpoConfig long_ppo() {
  PpoConfig options = small_ppo(kLanes);
  options.population.epochs = kLength;
  options.population.gates.min_training_steps = 1;  // so that seeds are felt before the end
  options.population.embargo = 1;
  return options;
}

struct Played {
  std::vector<std::vector<EpochRecord>> epochs;  // [episode][epoch]
  Recording recording;
  std::vector<int64_t> illegal;  // [L] in the last episode
};

Played played(PopulationTrainer& environments, Controller& controller, const std::string& name = "random") {
  Played all;
  Recorder recorder(name, long_ppo().population, environments.population(0));
  for (int64_t episode = 0; episode < kEpisodes; ++episode) {
    all.epochs.emplace_back();
    const EpisodeRecord record = play_episode(environments, controller, kFirstHeldOutRound + episode,
                                              {.step_done = [&](int64_t, const EpochRecord& epoch) {
                                                all.epochs.back().push_back(epoch);
                                                recorder.add_step(epoch);
                                              }});
    recorder.end_episode(record.last);
  }
  all.recording = recorder.recording();
  all.illegal = controller.num_illegal();
  return all;
}

Played played_at_random() {
  PopulationTrainer environments = small_environments(long_ppo());
  const auto random = rule_controller("random", long_ppo(), environments.population(0));
  return played(environments, *random);
}

RecordedOptions options_for(const Recording& recording) {
  return {.name = "replay:FILE",
          .slots = recording.slots,
          .blueprints = recording.blueprints,
          .lanes = kLanes,
          .limits = {.max_seeds = 3}};
}

// The schedule of every network turned so that the network which made it meets it again.
Recording turned_back(Recording recording) {
  std::ranges::rotate(recording.networks, recording.networks.end() - recording.lanes);
  return recording;
}

void expect_same_episodes(const Played& a, const Played& b) {
  ASSERT_EQ(a.epochs.size(), b.epochs.size());
  for (size_t episode = 0; episode < a.epochs.size(); ++episode)
    for (size_t epoch = 0; epoch + 1 < a.epochs[episode].size();
         ++epoch)  // the last decision is not recorded
      expect_same_epoch(a.epochs[episode][epoch], b.epochs[episode][epoch],
                        fmt::format("episode {}, epoch {}", episode, epoch));
}

TEST(ReplayController, RepeatsANetworkBitForBitWhereItIsGivenItsOwnSchedule) {
  const Played random = played_at_random();
  int64_t acted = 0;
  for (const RecordedNetwork& network : random.recording.networks) acted += std::ssize(network.actions);
  ASSERT_GT(acted, 20);
  PopulationTrainer environments = small_environments(long_ppo());
  ReplayController replay(turned_back(random.recording), options_for(random.recording));
  const Played again = played(environments, replay);
  expect_same_episodes(random, again);
  EXPECT_EQ(again.illegal, std::vector<int64_t>(kLanes, 0));
  EXPECT_EQ(again.recording.networks, random.recording.networks);
}

TEST(ReplayController, PlaysNoNetworksOwnScheduleWhereTheRecordedEpisodesArePlayedAgain) {
  const Played random = played_at_random();
  PopulationTrainer environments = small_environments(long_ppo());
  ReplayController replay(random.recording, options_for(random.recording));
  const Played other = played(environments, replay);
  for (size_t i = 0; i < other.recording.networks.size(); ++i) {
    const auto& meant = random.recording.networks[(i + kLanes) % other.recording.networks.size()].actions;
    // What was done is what was meant, less what was not possible.
    for (const RecordedAction& action : other.recording.networks[i].actions)
      EXPECT_EQ(std::ranges::count(meant, action), 1) << "network " << i;
  }
}

LaneReport report_of(std::vector<SlotState> states, int64_t epoch) {
  LaneReport report{.lane = 0, .epoch = epoch};
  for (const SlotState& state : states) report.slots.push_back({.state = state});
  return report;
}

Recording one_network(std::vector<RecordedAction> actions) {
  Recording recording{.host = "tiny",
                      .slots = {"r0c0", "r0c1", "r1c0"},
                      .blueprints = {"noop", "norm"},
                      .lanes = 1,
                      .episodes = 1,
                      .episode_length = 20};
  recording.networks = {{.actions = std::move(actions), .seeds = {}}};
  return recording;
}

SeedAction plant(int32_t slot, int32_t blueprint = 1) {
  return {.op = SeedOp::kGerminate, .slot = slot, .blueprint = blueprint, .steps = 3};
}

TEST(ReplayController, WaitsWhereAnActionIsNotPossibleAndCountsIt) {
  const SlotState holding{.stage = SeedStage::kHolding,
                          .blueprint = 1,
                          .amplitude = 1,
                          .target = 1,
                          .age_steps = 5,
                          .num_seeds = 1};
  RecordedOptions options{.name = "replay",
                          .slots = {"r0c0", "r0c1", "r1c0"},
                          .blueprints = {"noop", "norm"},
                          .lanes = 1,
                          .limits = {.enabled_slots = {true, false, true}, .max_seeds = 2}};
  ReplayController replay(one_network({{1, plant(0)},
                                       {2, {.op = SeedOp::kAdvance, .slot = 0}},
                                       {3, plant(1)},
                                       {4, plant(2)},
                                       {5, plant(2, 0)},
                                       {6, {.op = SeedOp::kPrune, .slot = 0}},
                                       {7, plant(2)},
                                       {9, plant(2)}}),
                          options);
  replay.begin_episode(0);
  const SlotState none{};
  const auto op_at = [&](int64_t epoch, const std::vector<SlotState>& states) {
    return replay.decide(std::vector{report_of(states, epoch)}).front().op;
  };
  EXPECT_EQ(op_at(1, {none, none, none}), SeedOp::kGerminate);
  EXPECT_EQ(replay.num_illegal().front(), 0);
  EXPECT_EQ(op_at(2, {none, none, none}), SeedOp::kWait);  // nothing there to advance
  EXPECT_EQ(replay.num_illegal().front(), 1);
  EXPECT_EQ(op_at(3, {none, none, none}), SeedOp::kWait);  // not one of --slots
  EXPECT_EQ(replay.num_illegal().front(), 2);
  EXPECT_EQ(op_at(4, {holding, holding, none}), SeedOp::kWait);  // as many seeds as there may be
  EXPECT_EQ(replay.num_illegal().front(), 3);
  EXPECT_EQ(op_at(5, {none, none, none}), SeedOp::kWait);  // noop is nobody's choice
  EXPECT_EQ(replay.num_illegal().front(), 4);
  EXPECT_EQ(op_at(6, {holding, none, none}), SeedOp::kPrune);
  EXPECT_EQ(op_at(7, {holding, none, none}), SeedOp::kGerminate);
  EXPECT_EQ(op_at(8, {holding, none, none}), SeedOp::kWait);  // nothing was recorded
  EXPECT_EQ(replay.num_illegal().front(), 4);
  const SlotState barred{.flags = kSlotBarred};  // by the governor
  EXPECT_EQ(op_at(9, {holding, none, barred}), SeedOp::kWait);
  EXPECT_EQ(replay.num_illegal().front(), 5);
  replay.begin_episode(1);
  EXPECT_EQ(replay.num_illegal().front(), 0);
}

TEST(RecordedControllers, RefuseOtherSlotsBlueprintsAndLimits) {
  Recording recording = one_network({{1, plant(0)}});
  recording.networks[0].seeds = {{.slot = 1, .blueprint = 1}, {.slot = 2, .blueprint = 1}};
  RecordedOptions options{.name = "--controllers static:FILE",
                          .slots = recording.slots,
                          .blueprints = {"norm"},
                          .lanes = 1,
                          .limits = {}};
  EXPECT_NO_THROW(ReplayController(recording, options));  // by names, not by numbers
  options.blueprints = {"noop"};
  EXPECT_ERROR(ReplayController(recording, options), UsageError, "static:FILE", "norm");
  options.blueprints = recording.blueprints;
  options.limits.max_seeds = 1;
  EXPECT_ERROR(StaticController(recording, options), UsageError, "2 seeds", "--max-seeds 2");
  options.limits = {.enabled_slots = {true, true, false}};
  EXPECT_ERROR(StaticController(recording, options), UsageError, "r1c0", "--slots");
  options.slots = {"r0c0"};
  EXPECT_ERROR(StaticController(recording, options), UsageError, "r0c0,r0c1,r1c0", "--host tiny");
}

TEST(StaticController, BeginsWithWhatTheRecordedNetworksEndedWith) {
  const Played random = played_at_random();
  PopulationTrainer environments = small_environments(long_ppo());
  StaticController fixed(random.recording, options_for(random.recording));
  const Played grown = played(environments, fixed);
  int64_t seeds = 0, differing = 0;
  for (size_t episode = 0; episode < kEpisodes; ++episode)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto& recorded = random.recording.networks[episode * kLanes + lane].seeds;
      for (const EpochRecord& epoch : grown.epochs[episode]) {
        const LaneRecord& record = epoch.lanes[lane];
        EXPECT_EQ(record.action.op, SeedOp::kWait);
        int64_t standing = 0;
        for (const SlotReport& slot : record.slots) standing += holds_seed(slot.state.stage) ? 1 : 0;
        EXPECT_EQ(standing, std::ssize(recorded));
        for (const RecordedSeed& seed : recorded) {
          const SlotState& state = record.slots[static_cast<size_t>(seed.slot)].state;
          EXPECT_EQ(state.stage, SeedStage::kFossilized);
          EXPECT_EQ(state.blueprint, seed.blueprint);
          EXPECT_EQ(state.blend_operator, seed.blend_operator);
          EXPECT_EQ(state.amplitude, seed.amplitude);
        }
      }
      seeds += std::ssize(recorded);
      const LaneRecord& last = random.epochs[episode].back().lanes[lane];
      const auto held = std::ranges::count_if(
          last.slots, [](const SlotReport& slot) { return holds_seed(slot.state.stage); });
      if (held == std::ssize(recorded)) {  // none that it does not feel
        EXPECT_EQ(grown.epochs[episode].back().lanes[lane].num_parameters, last.num_parameters);
      }
      differing += grown.epochs[episode].back().lanes[lane].trained.loss != last.trained.loss ? 1 : 0;
    }
  EXPECT_GT(seeds, 2);
  EXPECT_GT(differing, 0);
  EXPECT_EQ(grown.recording.networks.front().seeds, random.recording.networks.front().seeds);
}

// What is planted before the first epoch is what a lane's own growth would plant: first values of its seed,
// and nothing of it depends on what stood there in the episode before.
TEST(StaticController, GivesTheSameBitsWhateverWasPlayedBefore) {
  const Played random = played_at_random();
  PopulationTrainer fresh = small_environments(long_ppo()), used = small_environments(long_ppo());
  const auto before = rule_controller("random", long_ppo(), used.population(0));
  play_episode(used, *before, kFirstHeldOutRound + 7, {});
  StaticController fixed(random.recording, options_for(random.recording));
  expect_same_episodes(played(fresh, fixed), played(used, fixed));
}

}  // namespace
}  // namespace espalier::train
