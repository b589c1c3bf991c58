// PPO trainers for tests: the small population of small_population.h under a small policy.
#pragma once

#include "espalier/train/control/ppo_trainer.h"
#include "tests/train/population/small_population.h"

namespace espalier::train::testing {

inline PpoConfig small_ppo(int64_t lanes) {
  PpoConfig options;
  options.population = small_options(lanes);
  options.population.batch = 5;
  options.population.epochs = 6;
  options.population.plan = data::PlanKind::kSplit;
  options.population.devices = {parse_device("cpu")};
  options.rounds = 4;
  options.policy.encoder_size = 16;
  options.policy.hidden_size = 16;
  return options;
}

inline std::vector<ShardSetup> small_shards(const PpoConfig& options) {
  std::vector<ShardSetup> shards;
  for (const DeviceName& device : devices_of(options.population))
    shards.push_back(small_setup(options.population, nullptr, device));
  return shards;
}

inline PopulationTrainer small_environments(const PpoConfig& options) {
  return PopulationTrainer(options.population, small_shards(options), policy_device_of(options),
                           OnFailure::kRetire);
}

// Every epoch of a round, in order.
inline std::vector<EpochRecord> epochs_of_round(PpoTrainer& trainer) {
  std::vector<EpochRecord> epochs;
  trainer.train_round({}, [&](int64_t, const EpochRecord& epoch) { epochs.push_back(epoch); });
  return epochs;
}

inline void expect_same_epoch(const EpochRecord& a, const EpochRecord& b, const std::string& what) {
  ASSERT_EQ(a.lanes.size(), b.lanes.size()) << what;
  for (size_t i = 0; i < a.lanes.size(); ++i) {
    SCOPED_TRACE(what + ", lane " + std::to_string(i));
    EXPECT_EQ(a.lanes[i].lane, b.lanes[i].lane);
    EXPECT_EQ(a.lanes[i].trained.loss, b.lanes[i].trained.loss);
    EXPECT_EQ(a.lanes[i].validated.loss, b.lanes[i].validated.loss);
    EXPECT_EQ(a.lanes[i].validated.accuracy, b.lanes[i].validated.accuracy);
    EXPECT_EQ(a.lanes[i].num_parameters, b.lanes[i].num_parameters);
    EXPECT_EQ(a.lanes[i].action.op, b.lanes[i].action.op);
    EXPECT_EQ(a.lanes[i].action.slot, b.lanes[i].action.slot);
    EXPECT_EQ(a.lanes[i].action.blueprint, b.lanes[i].action.blueprint);
    for (size_t slot = 0; slot < a.lanes[i].slots.size(); ++slot) {
      EXPECT_EQ(a.lanes[i].slots[slot].state.stage, b.lanes[i].slots[slot].state.stage);
      EXPECT_EQ(a.lanes[i].slots[slot].measured.contribution_points,
                b.lanes[i].slots[slot].measured.contribution_points);
    }
  }
}

}  // namespace espalier::train::testing
