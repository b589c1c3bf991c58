#include "espalier/train/step/snapshots.h"

#include <gtest/gtest.h>

#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

using lanes::testing::expect_lane_layout;
using testing::copy_of_lane;
using testing::expect_same_lane;

// Every parameter with its gradient and compute copy, and the optimisers' state.
void expect_layout(testing::OneShard& trainer) {
  int64_t convolutions = 0;
  for (const grow::ParameterGroup& group : trainer.population().groups())
    for (const lanes::NamedParameter& named : group.parameters) {
      expect_lane_layout(*named.parameter, group.name + "." + named.name);
      convolutions += named.parameter->value().dim() == 5 ? 1 : 0;
    }
  EXPECT_GT(convolutions, 2);  // those of the host, and the seed's
  for (const OptimizedGroup& each : trainer.step().optimizers().groups())
    for (const at::Tensor& state : each.optimizer->state())
      expect_lane_layout(state, "optimiser state of " + each.group.name);
}

TEST(LaneSnapshots, RestoreALanesBitsAndLeaveEverythingChannelsLast) {
  PopulationConfig options = testing::small_options(2);
  options.precision = Precision::kBf16;  // values and compute copies are memory of their own
  const auto controller = std::make_shared<testing::ScriptedController>();
  controller->script[{1, 1}] = testing::germinate(0, testing::kConvLight);
  testing::OneShard trainer(options, testing::small_setup(options, controller));
  for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch();
  LaneSnapshots snapshots(trainer.population(), trainer.step(), trainer.lifecycle());
  const std::vector<int64_t> lanes{0, 1};
  for (const bool into_the_same : {false, true}) {  // a first snapshot, and one over an older one
    SCOPED_TRACE(into_the_same);
    snapshots.take(lanes);
    const auto good = copy_of_lane(trainer, 1);
    trainer.train_epoch();
    snapshots.restore(1);
    expect_same_lane(copy_of_lane(trainer, 1), good, "lane 1");
    expect_layout(trainer);
    for (const lanes::LaneParameter* parameter : trainer.population().parameters())
      EXPECT_TRUE(at::equal(parameter->compute(), parameter->value().to(parameter->compute().scalar_type())));
    trainer.train_epoch();
    expect_layout(trainer);
  }
}

}  // namespace
}  // namespace espalier::train
