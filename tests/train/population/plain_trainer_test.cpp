// Nothing changes but the speed: the stacked trainer does what a plain loop over lanes does.
#include <gtest/gtest.h>

#include "tests/train/population/plain_trainer.h"

namespace espalier::train {
namespace {

using testing::PlainLane;

constexpr int64_t kLanes = 4, kSteps = 10;

// What a comparison went through: else it might be of networks that never grew.
struct Exercise {
  int64_t num_ops = 0;
  int64_t num_blended = 0;
};

void compare_one_round(uint64_t seed, Exercise& exercise) {
  PpoConfig options = testing::small_ppo(kLanes);
  options.population.seed = seed;
  options.population.epochs = kSteps;
  options.population.learning_rate = 0.02;
  options.population.seed_rate = 1.5;
  options.population.seed_warm_up = 5;
  options.population.clip = 0.5;
  options.max_seeds = 2;
  PpoTrainer trainer(options, testing::small_shards(options));
  const std::vector<EpochRecord> fast = testing::epochs_of_round(trainer);
  const policy::Rollout& rollout = trainer.policy()->acting().rollout();

  // The same from its parts: first values of weights and seeds come from a population that is never trained.
  const ShardSetup setup = testing::small_shards(options).front();
  grow::CnnHostOptions host = testing::small_host(options.population);
  host.seed = episode_seed(options.population.seed, 0);
  grow::NetworkStack nursery(host, setup.blueprints, at::kCPU, at::kFloat);
  data::GatherIterator train(training_plan(options.population, setup.device, at::kFloat), {setup.dataset},
                             data::Split::kTrain);
  data::GatherIterator validate(
      evaluation_plan(options.population, setup.device, at::kFloat, setup.dataset->validation.num_samples()),
      {setup.dataset}, data::Split::kValidation);
  const RateSchedule schedule = RateSchedule::one_cycle(train.length() * kSteps);
  const policy::PolicyNetwork network(trainer.policy()->network().options());
  const policy::MaskRules rules(PlainLane::space_of(nursery), at::ones({nursery.num_slots()}, at::kBool),
                                options.max_seeds);
  const policy::ActionSampler sampler(PlainLane::space_of(nursery), rules.blueprints());
  std::vector<PlainLane> lanes;
  for (int64_t lane = 0; lane < kLanes; ++lane) lanes.emplace_back(options, host, nursery, lane);

  const auto bare = static_cast<double>(grow::num_parameters(host));
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<SlotState> states;
    for (PlainLane& lane : lanes) {
      lane.begin_epoch();
      std::ranges::copy(lane.states(), std::back_inserter(states));
    }
    nursery.apply(states);
    for (PlainLane& lane : lanes) {
      lane.take_new_values(nursery);
      lane.train(train, schedule, step);
      lane.validate(validate);
    }
    for (int64_t slot = 0; slot < nursery.num_slots(); ++slot) {
      const bool is_asked = std::ranges::any_of(lanes, [&](PlainLane& lane) {
        const SlotState& state = lane.life().at(0, slot);
        return holds_seed(state.stage) && state.amplitude > 0 && state.stage != SeedStage::kFossilized;
      });
      if (is_asked)
        for (PlainLane& lane : lanes) lane.measure_without(validate, slot);
    }
    for (int64_t l = 0; l < kLanes; ++l) {
      SCOPED_TRACE("step " + std::to_string(step) + ", lane " + std::to_string(l));
      PlainLane& lane = lanes[static_cast<size_t>(l)];
      lane.act(network, rules, sampler, static_cast<double>(nursery.num_parameters(l)) / bare - 1);
      const testing::PlainStep& want = lane.shown();
      const LaneRecord& got = fast[static_cast<size_t>(step)].lanes[static_cast<size_t>(l)];
      EXPECT_NEAR(got.trained.loss, want.train_loss, 1e-5);
      EXPECT_NEAR(got.validated.loss, want.validation_loss, 1e-5);
      EXPECT_EQ(got.validated.accuracy, want.validation_accuracy);
      for (size_t slot = 0; slot < want.states.size(); ++slot) {
        EXPECT_EQ(got.slots[slot].state.stage, want.states[slot].stage);
        EXPECT_EQ(got.slots[slot].state.amplitude, want.states[slot].amplitude);
        EXPECT_EQ(got.slots[slot].state.blueprint, want.states[slot].blueprint);
        exercise.num_blended += want.states[slot].amplitude > 0;
      }
      if (step > 0) {
        EXPECT_NEAR(rollout.rewards[l][step - 1].item<double>(), want.reward, 1e-5);
      }
      if (step + 1 == kSteps) continue;  // nothing is decided
      for (int64_t head = 0; head < policy::kNumHeads; ++head)
        EXPECT_EQ(rollout.actions[l][step][head].item<int64_t>(), want.choice[static_cast<size_t>(head)]);
      exercise.num_ops += want.choice[0] != 0;
    }
  }
}

TEST(PpoTrainer, DoesWhatAPlainLoopOverLanesDoes) {
  Exercise exercise;
  for (const uint64_t seed : {5, 6, 7}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    compare_one_round(seed, exercise);
  }
  EXPECT_GT(exercise.num_ops, 30);
  EXPECT_GT(exercise.num_blended, 0);
}

}  // namespace
}  // namespace espalier::train
