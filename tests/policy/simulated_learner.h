// A policy with all that belongs to it, on a simulated population.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "espalier/policy/checkpoint.h"
#include "tests/policy/simulated_population.h"

namespace espalier::policy::testing {

class SimulatedLearner {
 public:
  struct Options {
    int64_t lanes = 32;
    int64_t steps = 25;
    int64_t hidden_size = 64;  // of the encoder too
    int64_t rounds = 100;      // until entropy weights are the last ones
    uint64_t network_seed = 1;
    SimulatedPopulation::Worth worth = SimulatedPopulation::kSomeHelp;
    PpoOptions ppo;
  };

  explicit SimulatedLearner(const Options& options)
      : options_(options),
        population_(options.lanes, options.worth),
        rules_(SimulatedPopulation::kSpace, at::ones({SimulatedPopulation::kSlots}, at::kBool),
               SimulatedPopulation::kSlots),
        sampler_(SimulatedPopulation::kSpace, rules_.blueprints()),
        network_({.space = SimulatedPopulation::kSpace,
                  .num_features = num_features(SimulatedPopulation::kSlots),
                  .encoder_size = options.hidden_size,
                  .hidden_size = options.hidden_size,
                  .seed = options.network_seed}),
        ppo_(network_, sampler_, options.ppo),
        acting_(network_, rules_, sampler_, ppo_.values(),
                {.lanes = options.lanes, .episode_length = options.steps, .seed = 1}) {}

  SimulatedPopulation& population() { return population_; }
  std::vector<NamedTensor> state() const { return state_of(network_, ppo_, acting_); }
  const PolicyNetwork& network() const { return network_; }

  // Rounds first to end - 1, each on a seed of its own: its number.
  void learn(int64_t first, int64_t end) {
    for (int64_t round = first; round < end; ++round) {
      ppo_.set_progress(static_cast<double>(round) / static_cast<double>(options_.rounds));
      play(static_cast<uint64_t>(round), round, Playing::kLearning);
      ppo_.update(acting_.rollout());
    }
  }

  // An episode by the policy. Returns [L] f32: undiscounted returns.
  at::Tensor play(uint64_t seed, int64_t round, Playing playing) {
    return play(seed, round, playing, [&](int64_t lane, std::span<const int64_t, kNumHeads> choice) {
      population_.act(lane, to_seed_action(choice));
    });
  }

  // act(lane, choice): carries out what the policy chose, or something else, whose op it then puts there.
  template <class Act>
  at::Tensor play(uint64_t seed, int64_t round, Playing playing, const Act& act) {
    population_.begin(seed);
    acting_.begin(round, playing);
    for (int64_t step = 0; step < options_.steps; ++step) {
      population_.train_epoch();
      population_.tell(acting_.signs(), acting_.failed());
      if (step > 0) acting_.settle();
      acting_.act();
      EXPECT_FALSE(acting_.illegal().any().item<bool>());
      int64_t* choices = acting_.actions().mutable_data_ptr<int64_t>();
      for (int64_t lane = 0; lane < options_.lanes; ++lane)
        act(lane, std::span<int64_t, kNumHeads>(choices + lane * kNumHeads, kNumHeads));
    }
    population_.train_epoch();
    population_.tell(acting_.signs(), acting_.failed());
    acting_.settle();
    return acting_.term_sums().sum(1);
  }

 private:
  Options options_;
  SimulatedPopulation population_;
  MaskRules rules_;
  ActionSampler sampler_;
  PolicyNetwork network_;
  Ppo ppo_;
  Acting acting_;
};

}  // namespace espalier::policy::testing
