#include <gtest/gtest.h>

#include "espalier/train/step/deterministic_scope.h"
#include "tests/support/cuda.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::train {
namespace {

using testing::small_ppo;
using testing::small_shards;

class PpoTrainerCuda : public ::testing::Test {
 protected:
  void SetUp() override { ESPALIER_SKIP_WITHOUT_CUDA(); }
};

PpoConfig on_gpu(bool graphs) {
  PpoConfig options = small_ppo(4);
  options.population.devices = {parse_device("cuda:0")};
  options.population.epochs = 10;
  options.population.deterministic = true;
  options.population.graphs = graphs;
  options.population.precision = Precision::kFp32;
  return options;
}

TEST_F(PpoTrainerCuda, DoesReplayedWhatItDoesEagerly) {
  const PpoConfig replayed = on_gpu(true), eager = on_gpu(false);
  PpoTrainer a(replayed, small_shards(replayed)), b(eager, small_shards(eager));
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
  for (const bool is_half : {false, true}) {
    PpoConfig one = on_gpu(true);
    one.population.precision = is_half ? Precision::kBf16 : Precision::kFp32;
    PpoConfig two = one;
    two.population.devices = {parse_device("cuda:0"), parse_device("cuda:0")};
    PpoTrainer together(one, small_shards(one)), apart(two, small_shards(two));
    for (int round = 0; round < 2; ++round) {
      const auto left = testing::epochs_of_round(together), right = testing::epochs_of_round(apart);
      for (size_t step = 0; step < left.size(); ++step)
        testing::expect_same_epoch(left[step], right[step],
                                   (is_half ? "bf16, step " : "fp32, step ") + std::to_string(step));
    }
  }
}

TEST_F(PpoTrainerCuda, DecidesAsOnTheCpu) {
  PpoConfig gpu = on_gpu(true), cpu = gpu;
  cpu.population.devices = {parse_device("cpu")};
  gpu.population.learning_rate = cpu.population.learning_rate = 0.02;
  PpoTrainer a(gpu, small_shards(gpu)), b(cpu, small_shards(cpu));
  const auto left = testing::epochs_of_round(a), right = testing::epochs_of_round(b);
  for (size_t step = 0; step < 4; ++step)
    for (size_t lane = 0; lane < 4; ++lane) {
      EXPECT_NEAR(left[step].lanes[lane].trained.loss, right[step].lanes[lane].trained.loss, 1e-3);
      EXPECT_EQ(left[step].lanes[lane].action.op, right[step].lanes[lane].action.op);
    }
}

}  // namespace
}  // namespace espalier::train
