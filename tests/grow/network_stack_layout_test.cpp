#include "espalier/grow/network_stack.h"
#include "espalier/lanes/optim/optimizer.h"
#include "tests/grow/grown_stack.h"

namespace espalier::grow {
namespace {

using lanes::testing::expect_lane_layout;
using testing::images_for;
using testing::run_step;
using testing::States;

// Every blueprint somewhere, in bf16, where values and compute copies are memory of their own.
class PopulationLayoutTest : public ::testing::Test {
 protected:
  PopulationLayoutTest() : population_(testing::two_blocks(3), BlueprintRegistry(), at::kCPU, at::kBFloat16) {
    States states(3, 3);
    for (int32_t blueprint = 0; blueprint < population_.blueprints().size(); ++blueprint)
      states.at(blueprint / 3, blueprint % 3) = testing::seed_in(
          SeedStage::kBlending, blueprint, 0.5f, blueprint % 2 ? BlendOperator::kGate : BlendOperator::kAdd);
    population_.apply(states.all);
    for (const ParameterGroup& group : population_.groups())
      optimizers_.push_back(std::make_unique<lanes::LaneSGD>(
          lanes::without_names(group.parameters),
          lanes::LaneSgdOptions{.learning_rate = 0.01, .momentum = 0.9, .nesterov = true}));
  }

  std::vector<const void*> addresses() {
    std::vector<const void*> all;
    for (const lanes::LaneParameter* parameter : population_.parameters())
      for (const at::Tensor& tensor : {parameter->value(), parameter->gradient(), parameter->compute()})
        all.push_back(tensor.const_data_ptr());
    return all;
  }

  // Values, gradients, compute copies and the optimisers' state; compute copies hold the values.
  void expect_layout() {
    int64_t convolutions = 0;
    for (const ParameterGroup& group : population_.groups())
      for (const lanes::NamedParameter& named : group.parameters) {
        const std::string name = group.name + "." + named.name;
        expect_lane_layout(*named.parameter, name);
        convolutions += named.parameter->value().dim() == 5 ? 1 : 0;
        EXPECT_TRUE(at::equal(named.parameter->compute(),
                              named.parameter->value().to(named.parameter->compute().scalar_type())))
            << name;
      }
    EXPECT_GT(convolutions, 8);
    for (const auto& optimizer : optimizers_)
      for (const at::Tensor& state : optimizer->state()) expect_lane_layout(state, "optimiser state");
  }

  void train() {
    run_step(population_, images_for(population_, 4, at::kBFloat16));
    for (const auto& optimizer : optimizers_) optimizer->step();
  }

  NetworkStack population_;
  std::vector<std::unique_ptr<lanes::LaneSGD>> optimizers_;
};

TEST_F(PopulationLayoutTest, StaysChannelsLastWhenALaneIsLoadedFromNchw) {
  const auto before = addresses();
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane)
    for (const NamedTensor& named : population_.lane_values(lane)) {
      const at::Tensor foreign = at::rand(named.tensor.sizes());
      named.tensor.copy_(foreign);
      EXPECT_TRUE(at::equal(named.tensor, foreign)) << named.name;
    }
  population_.refresh();
  expect_layout();
  for (int step = 0; step < 2; ++step) train();
  expect_layout();
  EXPECT_EQ(addresses(), before);
}

TEST_F(PopulationLayoutTest, StaysChannelsLastWhenAParameterIsLoadedFromNchw) {
  const auto before = addresses();
  const at::NoGradGuard no_grad;
  for (const lanes::LaneParameter* parameter : population_.parameters()) {
    const at::Tensor foreign = at::rand(parameter->storage().sizes());  // without gaps between lanes, too
    parameter->storage().copy_(foreign);
    parameter->refresh();
    EXPECT_TRUE(at::equal(parameter->storage(), foreign));
  }
  expect_layout();
  EXPECT_EQ(addresses(), before);
}

}  // namespace
}  // namespace espalier::grow
