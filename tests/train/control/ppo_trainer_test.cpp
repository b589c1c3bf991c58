#include "espalier/train/control/ppo_trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/tensor/file.h"
#include "tests/support/host_reads.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::train {
namespace {

using testing::poison;
using testing::small_ppo;
using testing::small_shards;

void expect_same_policy(const PolicyController& a, const PolicyController& b) {
  const auto left = a.state(), right = b.state();
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i)
    EXPECT_TRUE(at::equal(left[i].tensor, right[i].tensor)) << left[i].name;
}

TEST(PpoTrainer, LearnsFromTheRewardsThatItReports) {
  for (const std::string_view rule : policy::rewards().names()) {
    SCOPED_TRACE(rule);
    PpoConfig options = small_ppo(3);
    options.population.epochs = 12;
    options.reward.rule = rule;
    PpoTrainer trainer(options, small_shards(options));
    std::vector<EpochRecord> told;
    const RoundRecord round =
        trainer.train_round({}, [&](int64_t, const EpochRecord& epoch) { told.push_back(epoch); });
    const policy::Rollout& rollout = trainer.policy()->acting().rollout();
    ASSERT_EQ(rollout.steps(), 11);
    for (int64_t lane = 0; lane < 3; ++lane) {
      const auto i = static_cast<size_t>(lane);
      EXPECT_FALSE(told[0].lanes[i].reward.counts);
      EXPECT_EQ(told[0].lanes[i].reward.sum(), 0);
      for (int64_t step = 0; step < 11; ++step) {
        const LaneReward& reward = told[static_cast<size_t>(step + 1)].lanes[i].reward;
        EXPECT_TRUE(reward.counts);
        EXPECT_EQ(reward.terms.size(), trainer.environments().reward_terms().size());
        EXPECT_NEAR(rollout.rewards[lane][step].item<double>(), reward.sum(), 1e-5) << lane << ", " << step;
        EXPECT_EQ(rollout.ended[lane][step].item<bool>(), step == 10);
      }
      EXPECT_NEAR(rollout.rewards[lane].sum().item<double>(), round.episode.returns[i], 1e-4);
      EXPECT_EQ(round.episode.lengths[i], 11);
    }
  }
}

TEST(PpoTrainer, EndsTheEpisodeOfALaneThatIsLostAndPunishesItOnce) {
  const PpoConfig options = small_ppo(3);
  PpoTrainer sound(options, small_shards(options)), broken(options, small_shards(options));
  std::vector<EpochRecord> want = testing::epochs_of_round(sound), got;
  const RoundRecord round = broken.train_round({}, [&](int64_t, const EpochRecord& epoch) {
    got.push_back(epoch);
    if (epoch.epoch == 2) poison(broken.environments().shard(0), 1);
  });
  const policy::Rollout& rollout = broken.policy()->acting().rollout();
  // Lost in the third epoch: what was decided after the second ended it.
  const std::vector<bool> counts{true, true, false, false, false};
  for (int64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(rollout.counts[1][step].item<bool>(), counts[static_cast<size_t>(step)]) << step;
    EXPECT_EQ(rollout.ended[1][step].item<bool>(), step >= 1) << step;
  }
  EXPECT_LT(rollout.rewards[1][1].item<double>(), -0.9);
  EXPECT_EQ(round.episode.lengths[1], 2);
  EXPECT_EQ(round.episode.terms[1][static_cast<size_t>(policy::RewardTerm::kFailure)], -1);
  EXPECT_EQ(round.episode.num_lost(), 1);
  for (size_t step = 2; step < got.size(); ++step) {
    EXPECT_EQ(got[step].lanes[1].outcome, LaneOutcome::kRetired);
    EXPECT_EQ(got[step].lanes[1].action.op, SeedOp::kWait);
    for (const size_t other : {0, 2})
      EXPECT_EQ(got[step].lanes[other].validated.loss, want[step].lanes[other].validated.loss);
  }
  EXPECT_TRUE(at::isfinite(rollout.seen.features).all().item<bool>());
  for (const auto& each : broken.policy()->state())
    EXPECT_TRUE(at::isfinite(each.tensor).all().item<bool>()) << each.name;
  // The next round has it back.
  EXPECT_EQ(broken.train_round().episode.num_lost(), 0);
}

TEST(PpoTrainer, CountsALaneThatIsLostInItsFirstEpoch) {
  const PpoConfig options = small_ppo(2);
  PpoTrainer trainer(options, small_shards(options));
  PopulationTrainer& environments = trainer.environments();
  environments.begin_episode(0);
  trainer.policy()->begin_episode(0);
  grow::NetworkStack& population = environments.population(0);
  std::vector<at::Tensor> sound;
  for (const auto& each : population.lane_values(0)) sound.push_back(each.tensor.clone());
  poison(environments.shard(0), 0);
  environments.train_epoch(*trainer.policy());
  // Sound again, it is lost all the same.
  const auto live = population.lane_values(0);
  for (size_t i = 0; i < live.size(); ++i) live[i].tensor.copy_(sound[i]);
  population.refresh();
  for (int64_t step = 1; step < environments.episode_length(); ++step)
    environments.train_epoch(*trainer.policy());
  const policy::Rollout& rollout = trainer.policy()->acting().rollout();
  EXPECT_TRUE(rollout.ended[0][0].item<bool>());
  EXPECT_FALSE(rollout.counts[0][1].item<bool>());
  EXPECT_TRUE(rollout.counts[1].all().item<bool>());
}

TEST(PpoTrainer, GoesOnFromAFileAsIfItHadNeverStopped) {
  const support::TemporaryFolder folder;
  const PpoConfig options = small_ppo(2);
  PpoTrainer whole(options, small_shards(options)), first(options, small_shards(options)),
      second(options, small_shards(options));
  const support::RangeCounter reads("copy of the epoch");
  whole.train_round();
  EXPECT_EQ(reads.count(), options.population.epochs);
  first.train_round();
  first.save(folder / "policy.safetensors");
  second.resume(folder / "policy.safetensors");
  EXPECT_EQ(second.rounds_done(), 1);
  expect_same_policy(*first.policy(), *second.policy());
  for (int round = 0; round < 2; ++round) {
    const RoundRecord want = whole.train_round(), got = second.train_round();
    EXPECT_EQ(got.episode.round, round + 2);
    EXPECT_EQ(got.episode.returns, want.episode.returns);
    EXPECT_EQ(got.diagnostics, want.diagnostics);
  }
  expect_same_policy(*whole.policy(), *second.policy());
  EXPECT_EQ(reads.count(), (3 + 1 + 2) * options.population.epochs) << "of all three";
}

// It said "stoll", and nothing else.
TEST(PpoTrainer, RefusesAPolicyWhoseRoundsAreNoNumberAndStaysAsItWas) {
  const support::TemporaryFolder folder;
  const PpoConfig options = small_ppo(2);
  const std::string path = folder / "policy.safetensors";
  PpoTrainer written(options, small_shards(options)), fresh(options, small_shards(options)),
      untouched(options, small_shards(options));
  written.train_round();
  written.save(path);
  const TensorFile file = read_tensors(path);
  const std::vector<std::pair<std::string, at::Tensor>> tensors(file.tensors.begin(), file.tensors.end());
  for (const char* rounds : {"", "x1", "-1", "1x", "99999999999999999999"}) {
    Metadata metadata = file.metadata;
    metadata["rounds"] = rounds;
    write_tensors(path, tensors, metadata);
    EXPECT_ERROR(fresh.resume(path), Error, path, "'rounds'", "a number from 0", fmt::format("'{}'", rounds));
  }
  EXPECT_EQ(fresh.rounds_done(), 0);
  expect_same_policy(*fresh.policy(), *untouched.policy());
}

TEST(PpoTrainer, RefusesToSaveOrResumeWhatDoesNotLearn) {
  PpoConfig options = small_ppo(2);
  options.controller = "heuristic";
  PpoTrainer trainer(options, small_shards(options));
  EXPECT_EQ(trainer.policy(), nullptr);
  EXPECT_FALSE(trainer.train_round().diagnostics);
  EXPECT_ERROR(trainer.save("anywhere"), UsageError, "--save", "heuristic");
  EXPECT_ERROR(trainer.resume("anywhere"), UsageError, "--resume", "heuristic");
}

TEST(PpoTrainer, RefusesAControllerThatNobodyWouldAsk) {
  PpoConfig options = small_ppo(2);
  options.population.controller = "heuristic";
  EXPECT_ERROR(PpoTrainer(options, small_shards(options)), UsageError, "population.controller 'heuristic'",
               "`controller`");
}

TEST(PpoTrainer, TimesTheStepsThatItIsToldTo) {
  PpoConfig options = small_ppo(2);
  options.population.time_every = 4;
  PpoTrainer timed(options, small_shards(options));
  for (int round = 0; round < 2; ++round) {
    const PartTimes times = timed.train_round().episode.times;
    // 6 steps per round: the first and the fifth of one, the third of the next.
    for (const int64_t count : times.count) EXPECT_EQ(count, round == 0 ? 2 : 1);
    EXPECT_GT(times.mean_ms(StepPart::kTrain).value(), 0);
  }
  options.timing = false;
  PpoTrainer untimed(options, small_shards(options));
  EXPECT_FALSE(untimed.train_round().episode.times.mean_ms(StepPart::kTrain));
}

TEST(PpoTrainer, ReadsNothingOnTheHostBeforeItsOneCopy) {
  const PpoConfig options = small_ppo(2);
  PpoTrainer trainer(options, small_shards(options));
  PopulationTrainer& environments = trainer.environments();
  Shard& population = environments.shard(0);
  environments.begin_episode(0);
  trainer.policy()->begin_episode(0);
  for (int64_t step = 0; step < 3; ++step) environments.train_epoch(*trainer.policy());
  EpochBuffer buffer({{0, 1}}, environments.num_slots(), at::kCPU);
  EpochReading reading(
      {}, {.lanes = 2, .slots = environments.num_slots(), .episode_length = options.population.epochs});
  population.begin_epoch(buffer);
  const support::ReadRecorder recorder;
  population.begin_training();
  while (population.has_batches_left()) population.step().run();
  population.queue_validation({});
  buffer.collect(0, population.step().sums(), population.validation().sums());
  trainer.policy()->act(reading.read(buffer.sums(), 3));
  EXPECT_EQ(recorder.seen(), std::set<std::string>{});
}

}  // namespace
}  // namespace espalier::train
