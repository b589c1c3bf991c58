// Evidence that the whole of it learns: observation, masks, network, rewards and PPO on a simulated
// population with the real lifecycle, against the random controller on the same seeds.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "espalier/train/control/controller.h"
#include "tests/policy/simulated_learner.h"

namespace espalier::policy {
namespace {

using testing::SimulatedLearner;
using testing::SimulatedPopulation;

// Apart from those that are learned from, which count from 0.
constexpr uint64_t kHeldOut = 1'000'000;

// An episode by the random controller: the policy is asked too, and what it says is replaced.
at::Tensor play_at_random(SimulatedLearner& learner, uint64_t seed) {
  SimulatedPopulation& population = learner.population();
  const auto controller =
      train::controllers().at("random").make({.seed = seed, .blueprints = {1, 2, 3, 4, 5, 6, 7}});
  return learner.play(seed, 0, ActingMode::kSampling,
                      [&](int64_t lane, std::span<int64_t, kNumHeads> choice) {
                        train::LaneReport report{.lane = lane, .epoch = population.step()};
                        for (const SlotState& state : population.lifecycle().lane_states(lane))
                          report.slots.push_back({.state = state});
                        const SeedAction action = controller->decide({&report, 1})[0];
                        choice[0] = population.lost(lane) ? 0 : static_cast<int64_t>(action.op);
                        population.act(lane, action);
                      });
}

// An episode in which nothing is ever planted.
at::Tensor play_waiting(SimulatedLearner& learner, uint64_t seed) {
  return learner.play(seed, 0, ActingMode::kSampling,
                      [](int64_t, std::span<int64_t, kNumHeads> choice) { choice[0] = 0; });
}

// One-sided paired t-test that `more` is larger than `less`, pair by pair: the statistic.
double paired_t(const at::Tensor& more, const at::Tensor& less) {
  const at::Tensor gain = (more - less).to(at::kDouble);
  const double error = gain.std().item<double>() / std::sqrt(static_cast<double>(gain.numel()));
  return gain.mean().item<double>() / error;
}

TEST(SimulatedPopulation, OfALaneDoesNotDependOnItsNeighbours) {
  const auto accuracies = [](int64_t lanes) {
    SimulatedPopulation population(lanes);
    population.begin(5);
    population.train_epoch();
    for (int64_t lane = 0; lane < lanes; ++lane)
      population.act(lane, {.op = SeedOp::kGerminate, .slot = 1, .blueprint = 2});
    for (int step = 0; step < 5; ++step) population.train_epoch();
    std::vector<double> values;
    for (int64_t lane = 0; lane < 2; ++lane) values.push_back(population.accuracy(lane));
    return values;
  };
  EXPECT_EQ(accuracies(2), accuracies(9));
}

// Learns, and is compared on held-out seeds, pair by pair. Never to plant anything is better than chance, and
// what a policy comes to first: so it has to beat that too.
void expect_to_learn(const SimulatedLearner::Options& options) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  constexpr uint64_t kEpisodes = 4;
  SimulatedLearner learner(options);
  std::vector<at::Tensor> random, waiting, before, after;
  for (uint64_t i = 0; i < kEpisodes; ++i) {
    random.push_back(play_at_random(learner, kHeldOut + i));
    waiting.push_back(play_waiting(learner, kHeldOut + i));
    before.push_back(learner.play(kHeldOut + i, options.rounds, ActingMode::kSampling));
  }
  learner.learn(0, options.rounds);
  for (uint64_t i = 0; i < kEpisodes; ++i)
    after.push_back(learner.play(kHeldOut + i, options.rounds, ActingMode::kLikeliest));
  const at::Tensor trained = at::cat(after);
  const double mean = trained.mean().item<double>();
  ::testing::Test::RecordProperty("trained", std::to_string(mean));
  const auto expect_less = [&](const std::vector<at::Tensor>& episodes, const char* name) {
    const at::Tensor others = at::cat(episodes);
    ::testing::Test::RecordProperty(name, std::to_string(others.mean().item<double>()));
    // p < 0.01: the 99th percentile of Student's t with 127 degrees of freedom is 2.356.
    EXPECT_GT(paired_t(trained, others), 2.356)
        << mean << " on average; " << name << ": " << others.mean().item<double>();
  };
  expect_less(random, "random");
  expect_less(waiting, "waiting");
  expect_less(before, "untrained");
  at::set_num_threads(threads);
}

TEST(SimulatedPopulationSlow, LearningEarnsMoreThanChanceAndThanWaiting) {
  SimulatedLearner::Options options;
  options.rounds = 150;
  expect_to_learn(options);
}

// Without enough entropy in the op, a policy ends where it always waits.
TEST(SimulatedPopulationSlow, LearningFindsTheOneBlueprintThatHelps) {
  SimulatedLearner::Options options;
  options.rounds = 150;
  options.worth = SimulatedPopulation::kOneHelps;
  options.ppo.adam.learning_rate = 1e-3;  // the network is small: its steps may be larger
  expect_to_learn(options);
}

}  // namespace
}  // namespace espalier::policy
