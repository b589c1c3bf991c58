// A policy with all that belongs to it, on a simulated population.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "espalier/policy/checkpoint.h"
#include "espalier/policy/reward/account.h"
#include "tests/policy/simulated_population.h"

namespace espalier::policy::testing {

class SimulatedLearner {
 public:
  struct Options {
    int64_t lanes = 32;
    int64_t steps = 25;
    int64_t hidden_size = 64;  // the encoder's too
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
                {.lanes = options.lanes, .episode_length = options.steps, .seed = 1}),
        readings_(empty_raw_observation({.lanes = options.lanes, .space = SimulatedPopulation::kSpace})),
        lost_(at::zeros({options.lanes}, at::kBool)),
        account_(
            "shaped",
            {.lanes = options.lanes, .slots = SimulatedPopulation::kSlots, .gamma = options.ppo.gae.gamma}) {}

  SimulatedPopulation& population() { return population_; }
  std::vector<NamedTensor> state() const { return state_of(network_, ppo_, acting_); }
  const PolicyNetwork& network() const { return network_; }

  // Rounds first to end - 1, each on a seed of its own: its number.
  void learn(int64_t first, int64_t end) {
    for (int64_t round = first; round < end; ++round) {
      ppo_.set_progress(static_cast<double>(round) / static_cast<double>(options_.rounds));
      play(static_cast<uint64_t>(round), round, ActingMode::kLearning);
      ppo_.update(acting_.rollout());
    }
  }

  // An episode by the policy. Returns [L] f32: undiscounted returns.
  at::Tensor play(uint64_t seed, int64_t round, ActingMode mode) {
    return play(seed, round, mode, [&](int64_t lane, std::span<const int64_t, kNumHeads> choice) {
      population_.act(lane, to_seed_action(choice));
    });
  }

  // act(lane, choice): carries out what the policy chose, or something else, whose op it then puts there.
  template <class Act>
  at::Tensor play(uint64_t seed, int64_t round, ActingMode mode, const Act& act) {
    population_.begin(seed);
    acting_.begin(round, mode);
    account_.begin();
    at::Tensor returns = at::zeros({options_.lanes});
    for (int64_t step = 0; step <= options_.steps; ++step) {
      population_.train_epoch();
      population_.tell(readings_, lost_);
      account_.add(readings_, acting_.actions().select(1, 0), lost_,
                   step == 0                ? EpisodePart::kFirst
                   : step == options_.steps ? EpisodePart::kLast
                                            : EpisodePart::kMiddle);
      if (step > 0) {
        acting_.finish_step(account_.reward());
        returns += account_.reward().reward();
      }
      if (step == options_.steps) break;
      acting_.act(readings_, account_.frozen());
      EXPECT_FALSE(acting_.illegal().any().item<bool>());
      int64_t* choices = acting_.actions().mutable_data_ptr<int64_t>();
      for (int64_t lane = 0; lane < options_.lanes; ++lane)
        act(lane, std::span<int64_t, kNumHeads>(choices + lane * kNumHeads, kNumHeads));
    }
    return returns;
  }

 private:
  Options options_;
  SimulatedPopulation population_;
  MaskRules rules_;
  ActionSampler sampler_;
  PolicyNetwork network_;
  Ppo ppo_;
  Acting acting_;
  RawObservation readings_;
  at::Tensor lost_;  // [L] bool
  RewardAccount account_;
};

}  // namespace espalier::policy::testing
