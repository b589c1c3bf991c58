// What `espalier profile` counts of layouts, with every blueprint in turn and every way of blending it.
#include <gtest/gtest.h>

#include "espalier/watch/audit/layout.h"
#include "tests/grow/grown.h"
#include "tests/support/cuda.h"
#include "tests/train/population/small_population.h"

namespace espalier {
namespace {

void expect_no_conversion(train::testing::OneShard& trainer, c10::Device device, SeedStage stage) {
  ASSERT_EQ(trainer.lifecycle().at(1, 0).stage, stage);
  train::TrainStep& step = trainer.step();
  step.sync_groups(trainer.population().apply(trainer.lifecycle().states()));
  step.begin_epoch(0);
  step.run();  // makes what is made once
  const watch::LayoutReport report = watch::audit_layout(device, 1, [&] { step.run(); });
  EXPECT_EQ(report.num_conversions(), 0) << name_of(stage) << "\n" << report.text();
}

void expect_no_conversion_whatever_has_grown(const train::PopulationConfig& options, c10::Device device) {
  train::testing::OneShard trainer(options, train::testing::small_setup(options));
  grow::Lifecycle& life = trainer.lifecycle();
  const std::vector<std::string> blueprints = trainer.population().blueprints().names();
  for (size_t blueprint = 0; blueprint < blueprints.size(); ++blueprint)
    for (int op = 0; op < kNumBlendOperators; ++op) {
      const auto blend = static_cast<BlendOperator>(op);
      SCOPED_TRACE(blueprints[blueprint] + " by " + std::string(name_of(blend)));
      life.reset_lane(1);
      life.germinate(1, 0, {.blueprint = static_cast<int32_t>(blueprint), .blend_operator = blend});
      life.begin_epoch();
      expect_no_conversion(trainer, device, SeedStage::kTraining);
      for (int epoch = 0; epoch < 2; ++epoch) life.begin_epoch();
      ASSERT_TRUE(life.advance(1, 0, grow::testing::healthy()).passed());
      life.begin_epoch();
      expect_no_conversion(trainer, device, SeedStage::kBlending);
    }
}

TEST(SteadyStep, ConvertsNoLayoutWhateverHasGrown) {
  expect_no_conversion_whatever_has_grown(train::testing::small_options(2), at::kCPU);
}

// Eagerly: in a replayed graph only kernels are seen.
TEST(SteadyStepCuda, ConvertsNoLayoutWhateverHasGrown) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  train::PopulationConfig options = train::testing::small_options(2);
  options.devices = {parse_device("cuda")};
  options.graphs = false;
  options.precision = train::Precision::kBf16;
  expect_no_conversion_whatever_has_grown(options, c10::Device(c10::kCUDA, 0));
}

}  // namespace
}  // namespace espalier
