#if ESPALIER_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include "tests/grow/grown_stack.h"
#include "tests/support/cuda.h"

namespace espalier::grow {
namespace {

using lanes::testing::distance;
using lanes::testing::largest;
using testing::gradients_of_lane;
using testing::images_for;
using testing::seed_in;
using testing::States;
using testing::two_blocks;
using testing::Values;

// Two blueprints in one slot, all operators, an isolated seed and an empty entry.
States some_seeds() {
  States states(4, 3);
  states.at(0, 0) = seed_in(SeedStage::kTraining, 6);
  states.at(1, 0) = seed_in(SeedStage::kBlending, 6, 0.3f, BlendOperator::kMultiply);
  states.at(3, 0) = seed_in(SeedStage::kHolding, 3, 0.6f, BlendOperator::kGate);
  states.at(2, 1) = seed_in(SeedStage::kHolding, 2, 0.5f);
  states.at(3, 2) = seed_in(SeedStage::kHolding, 1, 0.8f);
  return states;
}

struct OnDevice {
  explicit OnDevice(at::Device device)
      : population(two_blocks(4), BlueprintRegistry(), device, at::kDouble), states(some_seeds()) {
    population.apply(states.all);
    torch::manual_seed(31);
    for (int64_t lane = 0; lane < 4; ++lane)
      for (const NamedTensor& named : population.lane_values(lane))
        if (!named.name.starts_with("host."))
          named.tensor.copy_(at::randn(named.tensor.sizes(), at::kDouble) * 0.4);
    x = lanes::testing::stacked_copy(images_for(population, 3, at::kDouble).to(device), at::kDouble);
  }

  // Logits, and gradients in all parameters. Statistics are given: a replay would move them.
  at::Tensor step() {
    const at::Tensor logits = population.forward(x, lanes::Mode::kEvaluate);
    lanes::lane_backward(logits.square().sum({1, 2}), population.parameters());
    return logits.detach();
  }

  NetworkStack population;
  States states;
  at::Tensor x;
};

void expect_equal(OnDevice& got, const at::Tensor& logits, OnDevice& want) {
  const at::Tensor wanted = want.step();
  EXPECT_LE(distance(logits.cpu(), wanted), 1e-9 * largest(wanted));
  for (int64_t lane = 0; lane < 4; ++lane) {
    const Values gradients = gradients_of_lane(got.population, lane);
    for (const auto& [name, gradient] : gradients_of_lane(want.population, lane))
      EXPECT_LE(distance(gradients.at(name).cpu(), gradient), 1e-9 * largest(gradient))
          << "lane " << lane << ": " << name;
  }
}

TEST(NetworkStackCuda, EqualsTheCpu) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  OnDevice cpu(at::kCPU), gpu(at::Device(at::kCUDA, 0));
  expect_equal(gpu, gpu.step(), cpu);
}

TEST(NetworkStackCuda, IsCapturedAsAWholeAndReplayedWithOtherSeedsOfTheSameSignature) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  OnDevice cpu(at::kCPU), gpu(at::Device(at::kCUDA, 0));
  const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
  for (int warm_up = 0; warm_up < 3; ++warm_up) gpu.step();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const at::Tensor logits = gpu.step();
  graph.capture_end();
  graph.replay();
  expect_equal(gpu, logits, cpu);

  const std::string signature = gpu.population.signature();
  for (OnDevice* each : {&cpu, &gpu}) {
    each->states.at(0, 0) = seed_in(SeedStage::kBlending, 6, 0.45f);
    each->states.at(1, 0) = {.stage = SeedStage::kPruned, .num_seeds = 1};
    each->states.at(2, 0) = seed_in(SeedStage::kTraining, 6);
    each->states.at(3, 2).amplitude = 0;
    each->population.apply(each->states.all);
  }
  ASSERT_EQ(gpu.population.signature(), signature);
  graph.replay();
  expect_equal(gpu, logits, cpu);
}

}  // namespace
}  // namespace espalier::grow
#endif  // ESPALIER_WITH_CUDA
