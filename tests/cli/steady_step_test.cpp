// What `espalier profile` counts, of populations that have grown: the command itself looks at bare hosts.
#include <gtest/gtest.h>

#include "espalier/watch/audit/layout_audit.h"
#include "tests/grow/grown.h"
#include "tests/train/small_population.h"

namespace espalier {
namespace {

void expect_no_conversion(train::PopulationTrainer& trainer, SeedStage stage) {
  ASSERT_EQ(trainer.lifecycle().at(1, 0).stage, stage);
  train::TrainStep& step = trainer.step();
  step.follow(trainer.population().apply(trainer.lifecycle().states()));
  step.begin_epoch(0);
  step.run();  // makes what is made once
  const watch::LayoutReport report = watch::audit_layout(at::kCPU, 1, [&] { step.run(); });
  EXPECT_EQ(report.num_conversions(), 0) << name_of(stage) << "\n" << report.text();
}

TEST(SteadyStep, ConvertsNoLayoutWhateverHasGrown) {
  const train::PopulationOptions options = train::testing::small_options(2);
  train::PopulationTrainer trainer(options, train::testing::small_setup(options));
  grow::Lifecycle& life = trainer.lifecycle();
  const std::vector<std::string> blueprints = trainer.population().blueprints().names();
  for (size_t blueprint = 0; blueprint < blueprints.size(); ++blueprint)
    for (int op = 0; op < kNumBlendOperators; ++op) {
      const auto blend = static_cast<BlendOperator>(op);
      SCOPED_TRACE(blueprints[blueprint] + " by " + std::string(name_of(blend)));
      life.reset_lane(1);
      life.germinate(1, 0, {.blueprint = static_cast<int32_t>(blueprint), .blend_operator = blend});
      life.begin_epoch();
      expect_no_conversion(trainer, SeedStage::kTraining);
      for (int epoch = 0; epoch < 2; ++epoch) life.begin_epoch();
      ASSERT_TRUE(life.advance(1, 0, grow::testing::healthy()).passed());
      life.begin_epoch();
      expect_no_conversion(trainer, SeedStage::kBlending);
    }
}

}  // namespace
}  // namespace espalier
