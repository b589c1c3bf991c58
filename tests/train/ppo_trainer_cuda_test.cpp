#include <gtest/gtest.h>

#include "espalier/train/deterministic_scope.h"
#include "tests/support/cuda.h"
#include "tests/train/small_ppo.h"

namespace espalier::train {
namespace {

using testing::small_ppo;
using testing::small_sites;

class PpoTrainerCuda : public ::testing::Test {
 protected:
  void SetUp() override { ESPALIER_SKIP_WITHOUT_CUDA(); }
};

PpoJobOptions on_gpu(bool graphs) {
  PpoJobOptions options = small_ppo(4);
  options.population.devices = "cuda:0";
  options.population.epochs = 10;
  options.population.deterministic = true;
  options.population.graphs = graphs;
  return options;
}

TEST_F(PpoTrainerCuda, DoesReplayedWhatItDoesEagerly) {
  const PpoJobOptions replayed = on_gpu(true), eager = on_gpu(false);
  PpoTrainer a(replayed, small_sites(replayed)), b(eager, small_sites(eager));
  for (int round = 0; round < 3; ++round) {  // the update is eager, captured, then replayed
    const auto left = testing::epochs_of_round(a), right = testing::epochs_of_round(b);
    for (size_t step = 0; step < left.size(); ++step)
      testing::expect_same_epoch(left[step], right[step], "step " + std::to_string(step));
    EXPECT_TRUE(at::equal(a.policy()->acting().rollout().rewards, b.policy()->acting().rollout().rewards));
  }
}

// Two populations of two networks each, and one of four: what stands beside a network leaves its bits alone.
TEST_F(PpoTrainerCuda, GivesOnTwoSitesOfAGpuWhatItGivesOnOne) {
  const DeterministicScope deterministic(true);
  for (const bool amp : {false, true}) {
    PpoJobOptions one = on_gpu(true);
    one.amp = amp;
    PpoJobOptions two = one;
    two.population.devices = "cuda:0,cuda:0";
    PpoTrainer together(one, small_sites(one)), apart(two, small_sites(two));
    for (int round = 0; round < 2; ++round) {
      const auto left = testing::epochs_of_round(together), right = testing::epochs_of_round(apart);
      for (size_t step = 0; step < left.size(); ++step)
        testing::expect_same_epoch(left[step], right[step],
                                   (amp ? "bf16, step " : "fp32, step ") + std::to_string(step));
    }
  }
}

TEST_F(PpoTrainerCuda, DecidesAsOnTheCpu) {
  PpoJobOptions gpu = on_gpu(true), cpu = gpu;
  cpu.population.devices = "cpu";
  gpu.population.learning_rate = cpu.population.learning_rate = 0.02;
  PpoTrainer a(gpu, small_sites(gpu)), b(cpu, small_sites(cpu));
  const auto left = testing::epochs_of_round(a), right = testing::epochs_of_round(b);
  for (size_t step = 0; step < 4; ++step)
    for (size_t lane = 0; lane < 4; ++lane) {
      EXPECT_NEAR(left[step].lanes[lane].trained.loss, right[step].lanes[lane].trained.loss, 1e-3);
      EXPECT_EQ(left[step].lanes[lane].action.op, right[step].lanes[lane].action.op);
    }
}

}  // namespace
}  // namespace espalier::train
