// Growing must not cost what it cannot give back: under the heuristic controller networks end as well as
// those that never grow, at low rates and at high ones, whichever plan shares the samples out.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "espalier/core/interval.h"
#include "espalier/grow/seeds/branch.h"
#include "espalier/lanes.h"
#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

// Long enough that networks which never grow are all above half by the end: at 0.02 that takes three times as
// many steps.
PopulationConfig shapes_job(data::PlanKind plan, double rate, const char* controller) {
  PopulationConfig options;
  options.source.data = "synthetic:shapes10";
  options.source.synthetic_train = 2000;
  options.source.synthetic_test = 300;
  options.source.synthetic_size = {16, 16};
  options.resident.validation = 200;
  options.devices = {parse_device("cpu")};
  options.lanes = 4;
  options.plan = plan;
  options.batch = 32;
  options.batches_per_step = 20;
  options.epochs = rate < 0.05 ? 60 : 20;
  options.crop_pad = 1;
  options.learning_rate = rate;
  options.controller = controller;
  options.embargo = 1;
  return options;
}

struct Outcome {
  std::vector<double> accuracies;  // on the test split, [L]
  int64_t seeds_felt = 0;          // over all lanes and steps, at an amplitude above 0
  int64_t flags = 0;               // collapses that the governor saw, over all lanes and steps
};

// A collapse is over when a lane's accuracy is at nine tenths of what it was before it.
class Recoveries {
 public:
  static constexpr int64_t kMostSteps = 5;

  explicit Recoveries(int64_t lanes) : lanes_(static_cast<size_t>(lanes)) {}

  void add(const LaneRecord& lane, int64_t step) {
    Lane& of = lanes_[static_cast<size_t>(lane.lane)];
    if (is_collapse(lane.verdict) && !of.since) {
      of.since = step;
      return;
    }
    if (of.since && !is_collapse(lane.verdict) && lane.validated.accuracy >= 0.9 * of.accuracy)
      of.since.reset();
    if (of.since)
      EXPECT_LT(step - *of.since, kMostSteps)
          << "lane " << lane.lane << " was at " << of.accuracy << " before step " << *of.since
          << " and is at " << lane.validated.accuracy;
    else if (lane.verdict == Verdict::kSound)
      of.accuracy = lane.validated.accuracy;
  }

 private:
  struct Lane {
    double accuracy = 0;           // before the collapse
    std::optional<int64_t> since;  // the step of a collapse that is not over
  };
  std::vector<Lane> lanes_;
};

Outcome outcome_of(const PopulationConfig& options, PopulationParts parts = {},
                   const std::vector<int32_t>& blueprints = {}) {
  parts.host = grow::cnn_host({.n_blocks = 3, .base_channels = 8, .pool_layers = 2});
  PopulationTrainer trainer(options, parts);
  const auto controller =
      blueprints.empty()
          ? controller_for(options, trainer.population(0).blueprints())
          : controllers().at(options.controller).make({.seed = options.seed, .blueprints = blueprints});
  Outcome outcome;
  Recoveries recoveries(options.lanes);
  while (trainer.epochs_done() < options.epochs)
    for (const LaneRecord& lane : trainer.train_epoch(*controller).lanes) {
      outcome.seeds_felt +=
          std::ranges::count_if(lane.slots, [](const SlotReport& slot) { return slot.state.amplitude > 0; });
      outcome.flags += is_collapse(lane.verdict) ? 1 : 0;
      recoveries.add(lane, trainer.epochs_done());
    }
  for (const LaneScore& score : trainer.test()) outcome.accuracies.push_back(score.accuracy);
  return outcome;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

TEST(GrowthStabilitySlow, LeavesNoLaneBehindThoseThatNeverGrow) {
  for (const data::PlanKind plan : {data::PlanKind::kOwn, data::PlanKind::kSplit})
    for (const double rate : {0.02, 0.05, 0.4}) {
      SCOPED_TRACE(fmt::format("plan {}, rate {}", plan == data::PlanKind::kOwn ? "own" : "split", rate));
      const Outcome none = outcome_of(shapes_job(plan, rate, "none"));
      const Outcome grown = outcome_of(shapes_job(plan, rate, "heuristic"));
      EXPECT_EQ(none.seeds_felt, 0);
      EXPECT_EQ(none.flags, 0) << "a healthy run";
      EXPECT_GT(grown.seeds_felt, 0) << "nothing grew: nothing was tested";
      const double bar = 0.9 * median(none.accuracies);
      for (size_t lane = 0; lane < grown.accuracies.size(); ++lane)
        EXPECT_GE(grown.accuracies[lane], bar) << "lane " << lane;
      std::vector<double> gains;
      for (size_t lane = 0; lane < grown.accuracies.size(); ++lane)
        gains.push_back(grown.accuracies[lane] - none.accuracies[lane]);
      const Interval gain = interval_of(gains);
      EXPECT_GE(gain.mean + gain.half_width, 0) << "mean gain " << gain.mean << " +- " << gain.half_width;
    }
}

// Far from the identity, and more so than any rate can mend in the time of a blend.
class Wrecker final : public grow::SeedModule {
 public:
  explicit Wrecker(const grow::SeedBuild& build)
      : conv_({.lanes = build.entries,
               .in_channels = build.shape.channels,
               .out_channels = build.shape.channels,
               .kernel_size = 1},
              build.options, build.compute) {}

  at::Tensor forward(const at::Tensor& x, lanes::Mode /*mode*/) override {  // [E,B,C,H,W]
    const auto [through, branch] = grow::lane_fork(x);
    return grow::lane_residual(through, conv_.forward(branch));
  }
  std::vector<lanes::NamedParameter> parameters() override { return conv_.parameters(); }
  void initialise(const grow::SeedInit& init) override { init.fill({"weight", &conv_.weight}, 100); }

 private:
  lanes::LaneConv2d conv_;
};

TEST(GrowthStabilitySlow, RecoversFromSeedsThatWreckTheirNetworks) {
  PopulationParts parts;
  const int32_t wrecker = parts.blueprints.add(
      {.name = "wrecker",
       .num_parameters = [](const grow::SeedShape& shape) { return shape.channels * shape.channels; },
       .make = [](const grow::SeedBuild& build) { return std::make_unique<Wrecker>(build); }});
  PopulationConfig options = shapes_job(data::PlanKind::kOwn, 0.1, "heuristic"), bare = options;
  options.epochs = bare.epochs = 30;  // every collapse costs a network the step that it goes back by
  bare.controller = "none";
  const Outcome none = outcome_of(bare);
  const double bar = 0.9 * median(none.accuracies);
  const Outcome governed = outcome_of(options, parts, {wrecker});
  EXPECT_GT(governed.flags, 0);
  for (size_t lane = 0; lane < governed.accuracies.size(); ++lane)
    EXPECT_GE(governed.accuracies[lane], bar) << "lane " << lane;
  options.governor.governing = Governing::kOff;
  const Outcome wrecked = outcome_of(options, parts, {wrecker});
  EXPECT_EQ(wrecked.flags, 0);
  EXPECT_LT(std::ranges::min(wrecked.accuracies), bar) << "nothing was wrecked: nothing was tested";
}

// One network relies on its seed so much that it is far worse without it than it was before the collapse.
TEST(GrowthStabilitySlow, LearnsOnWithoutASeedThatWasFelt) {
  PopulationConfig options;
  options.source.synthetic_train = 200;
  options.source.synthetic_test = 60;
  options.source.synthetic_size = {8, 8};
  options.resident.validation = 60;
  options.devices = {parse_device("cpu")};
  options.host = "tiny";
  options.lanes = 2;
  options.batch = 20;
  options.batches_per_step = 10;
  options.epochs = 52;
  options.crop_pad = 0;
  options.learning_rate = 0.1;
  options.schedule = RateCurve::kConstant;
  options.seed_warm_up = 10;
  options.gates.min_training_steps = 1;
  options.embargo = 1;
  testing::ScriptedController controller;
  for (const int64_t lane : {0, 1}) {
    controller.script[{lane, 1}] = testing::germinate(2, testing::kConvHeavy, 3);
    controller.script[{lane, 3}] = controller.script[{lane, 7}] = {.op = SeedOp::kAdvance, .slot = 2};
    controller.script[{lane, 40}] = {.op = SeedOp::kSetAmplitudeTarget,
                                     .slot = 2,
                                     .blend_operator = BlendOperator::kMultiply,
                                     .target = 0.5f};
  }
  PopulationTrainer trainer(options);
  std::vector<double> losses;  // of the network that went back, since then
  int64_t gone_back = -1;
  EpochRecord epoch;
  while (trainer.epochs_done() < options.epochs) {
    epoch = trainer.train_epoch(controller);
    for (const LaneRecord& lane : epoch.lanes)
      if (gone_back < 0 && lane.compared_anew)
        gone_back = lane.lane;
      else if (gone_back == lane.lane && lane.outcome == LaneOutcome::kTrained)
        losses.push_back(lane.trained.loss);
  }
  ASSERT_GE(gone_back, 0) << "no seed was taken away: nothing was tested";
  for (const LaneRecord& lane : epoch.lanes) EXPECT_LE(lane.num_rollbacks, 2) << "lane " << lane.lane;
  ASSERT_GT(losses.size(), 5u);
  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace
}  // namespace espalier::train
