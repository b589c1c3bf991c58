// Steps that are not validated: nothing of them is shown as measured, and all that lies between two
// validations is as it was after the first of them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/support/thread_ranks.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::train {
namespace {

using espalier::testing::as_ranks;
using testing::copy_of_lane;
using testing::expect_same_lane;
using testing::germinate;
using testing::kConvLight;
using testing::ScriptedController;
using testing::small_options;
using testing::small_ppo;
using testing::small_setup;
using testing::small_shards;

constexpr int64_t kEpochs = 8, kEvery = 3;

bool is_due(int64_t epoch) {
  return epoch % kEvery == 0 || epoch == kEpochs;
}

PopulationConfig sparse_options(int64_t lanes) {
  PopulationConfig options = small_options(lanes);
  options.epochs = kEpochs;
  options.validate_every = kEvery;
  return options;
}

// Lane 1 grows a seed that is felt from epoch 5 on.
std::shared_ptr<ScriptedController> felt_from_the_fifth() {
  auto controller = std::make_shared<ScriptedController>();
  controller->script[{1, 1}] = germinate(0, kConvLight, 1);
  controller->script[{1, 4}] = {.op = SeedOp::kAdvance, .slot = 0};
  controller->script[{1, 5}] = {.op = SeedOp::kAdvance, .slot = 0};
  return controller;
}

TEST(ValidateEvery, ScoresEveryNthStepAndTheLastAndTrainsAsEver) {
  const auto told = felt_from_the_fifth(), told_always = felt_from_the_fifth();
  PopulationConfig every_step = sparse_options(2);
  every_step.validate_every = 1;
  const PopulationConfig options = sparse_options(2);
  testing::OneShard always(every_step, small_setup(every_step, told_always)),
      now_and_then(options, small_setup(options, told));
  std::vector<double> measured;  // accuracies of lane 1
  int64_t num_contributions = 0;
  for (int64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    SCOPED_TRACE("epoch " + std::to_string(epoch));
    const EpochRecord want = always.train_epoch(), got = now_and_then.train_epoch();
    EXPECT_TRUE(want.is_validated);
    EXPECT_EQ(got.is_validated, is_due(epoch));
    for (const size_t lane : {0, 1})
      expect_same_lane(copy_of_lane(always, static_cast<int64_t>(lane)),
                       copy_of_lane(now_and_then, static_cast<int64_t>(lane)), "a lane");
    EXPECT_EQ(got.lanes[1].trained.loss, want.lanes[1].trained.loss);
    EXPECT_EQ(got.lanes[1].verdict, Verdict::kSound);
    const grow::SeedMeasurements &seed = got.lanes[1].slots[0].measured,
                                 &known = want.lanes[1].slots[0].measured;
    EXPECT_EQ(seed.gradient_norm, known.gradient_norm);
    const LaneReport& report = told->seen.back();
    EXPECT_EQ(report.lane, 1);
    EXPECT_EQ(report.is_validated, is_due(epoch));
    if (is_due(epoch)) {
      measured.push_back(want.lanes[1].validated.accuracy);
      EXPECT_EQ(got.lanes[1].validated.loss, want.lanes[1].validated.loss);
      EXPECT_EQ(got.lanes[1].validated.accuracy, want.lanes[1].validated.accuracy);
      EXPECT_EQ(seed.contribution_points, known.contribution_points);
      EXPECT_EQ(report.validation_loss, want.lanes[1].validated.loss);
      num_contributions += seed.contribution_points.has_value();
    } else {
      EXPECT_TRUE(std::isnan(got.lanes[1].validated.loss));
      EXPECT_TRUE(std::isnan(got.lanes[1].validated.accuracy));
      EXPECT_TRUE(std::isnan(got.mean_validated().accuracy));
      EXPECT_FALSE(seed.contribution_points);
      EXPECT_FALSE(seed.improvement_points);
      EXPECT_EQ(now_and_then.validation().sums().abs().sum().item<double>(), 0);
    }
    EXPECT_EQ(report.accuracies, measured);
    if (measured.empty()) {
      EXPECT_TRUE(std::isnan(report.validation_accuracy) && std::isnan(report.validation_loss));
    } else {
      EXPECT_EQ(report.validation_accuracy, measured.back());
    }
  }
  EXPECT_EQ(measured.size(), 3u);
  EXPECT_EQ(num_contributions, 2) << "of the seed, in epochs 6 and 8";
}

TEST(ValidateEvery, LetsAGateWaitForWhatIsMeasured) {
  PopulationConfig options = sparse_options(2);
  options.gates.mode = grow::GateMode::kStrict;
  options.gates.min_training_steps = 1;
  options.gates.min_improvement_points = -100;
  options.gates.min_gradient_ratio = 0;
  auto controller = std::make_shared<ScriptedController>();
  controller->script[{1, 3}] = germinate(0, kConvLight, 1);  // trains from epoch 4 on, when 3 was measured
  for (const int64_t epoch : {5, 6}) controller->script[{1, epoch}] = {.op = SeedOp::kAdvance, .slot = 0};
  testing::OneShard trainer(options, small_setup(options, controller));
  for (int64_t epoch = 1; epoch <= 6; ++epoch) {
    const LaneRecord lane = trainer.train_epoch().lanes[1];
    if (epoch == 5) {
      EXPECT_FALSE(lane.gate.passed());
      EXPECT_NE(lane.gate.summary().find("improvement"), std::string::npos) << lane.gate.summary();
    }
    if (epoch == 6) {
      EXPECT_TRUE(lane.gate.passed()) << lane.gate.summary();
    }
  }
}

// A lane that collapses between two validations goes back, and what was measured before it holds.
TEST(ValidateEvery, TakesALaneBackByItsTrainingAlone) {
  const PopulationConfig options = sparse_options(2);
  auto controller = std::make_shared<ScriptedController>();
  testing::OneShard trainer(options, small_setup(options, controller));
  for (int64_t epoch = 1; epoch <= 3; ++epoch) trainer.train_epoch();
  const double accuracy = controller->seen.back().validation_accuracy;
  testing::poison(trainer, 1);
  const EpochRecord lost = trainer.train_epoch();
  EXPECT_FALSE(lost.is_validated);
  EXPECT_EQ(lost.lanes[1].outcome, LaneOutcome::kRolledBack);
  EXPECT_EQ(trainer.train_epoch().lanes[1].outcome, LaneOutcome::kTrained);
  EXPECT_EQ(controller->seen.back().validation_accuracy, accuracy);
  EXPECT_EQ(controller->seen.back().accuracies, std::vector<double>{accuracy});
}

TEST(ValidateEvery, PaysGainsOfAccuracyWhenTheyAreMeasured) {
  for (const char* name : {"random", "ppo"}) {
    SCOPED_TRACE(name);
    PpoConfig options = small_ppo(3);
    options.controller = name;
    options.population.epochs = kEpochs;
    options.population.validate_every = kEvery;
    options.reward.weights = {.accuracy = 1, .rent = 0, .op = 0, .potential = 0};
    PpoTrainer trainer(options, small_shards(options));
    for (int round = 0; round < 2; ++round) {
      std::vector<double> before(3, std::nan(""));
      trainer.train_round({}, [&](int64_t, const EpochRecord& epoch) {
        SCOPED_TRACE("round " + std::to_string(round) + ", epoch " + std::to_string(epoch.epoch));
        for (const LaneRecord& lane : epoch.lanes) {
          ASSERT_EQ(lane.verdict, Verdict::kSound);
          double& last = before[static_cast<size_t>(lane.lane)];
          const double gain =
              epoch.is_validated && !std::isnan(last) ? 100 * (lane.validated.accuracy - last) : 0;
          EXPECT_NEAR(lane.reward.terms[0], gain, 1e-4) << "what was measured first is no gain";
          if (epoch.is_validated) last = lane.validated.accuracy;
        }
      });
      EXPECT_FALSE(std::isnan(before[2]));
    }
  }
}

void expect_same(const std::vector<EpochRecord>& a, const std::vector<EpochRecord>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t step = 0; step < a.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step + 1));
    EXPECT_EQ(a[step].is_validated, b[step].is_validated);
    ASSERT_EQ(a[step].lanes.size(), b[step].lanes.size());
    for (size_t i = 0; i < a[step].lanes.size(); ++i) {
      const LaneRecord &one = a[step].lanes[i], &other = b[step].lanes[i];
      EXPECT_EQ(one.lane, other.lane);
      EXPECT_EQ(one.trained.loss, other.trained.loss);
      EXPECT_EQ(std::isnan(one.validated.loss), std::isnan(other.validated.loss));
      if (a[step].is_validated) {
        EXPECT_EQ(one.validated.loss, other.validated.loss);
      }
      EXPECT_EQ(one.action.op, other.action.op);
      EXPECT_EQ(one.action.slot, other.action.slot);
      EXPECT_EQ(one.reward.terms, other.reward.terms);
      for (size_t slot = 0; slot < one.slots.size(); ++slot)
        EXPECT_EQ(one.slots[slot].measured.contribution_points,
                  other.slots[slot].measured.contribution_points);
    }
  }
}

std::vector<EpochRecord> played(PopulationTrainer& environments, const PpoConfig& options) {
  const auto controller = rule_controller(options.controller, options, environments.population(0));
  std::vector<EpochRecord> epochs;
  play_episode(environments, *controller, 0,
               {.step_done = [&](int64_t, const EpochRecord& epoch) { epochs.push_back(epoch); }});
  return epochs;
}

// Two shards of one process, and two processes.
TEST(ValidateEvery, GivesOnTwoDevicesAndOverRanksWhatItGivesOnOne) {
  PpoConfig options = small_ppo(3);
  options.controller = "random";
  options.population.epochs = kEpochs;
  options.population.validate_every = kEvery;
  options.population.gates.min_training_steps = 1;
  PopulationTrainer one = testing::small_environments(options);
  const std::vector<EpochRecord> want = played(one, options);
  EXPECT_TRUE(std::ranges::any_of(want, [](const EpochRecord& epoch) {
    return std::ranges::any_of(epoch.lanes, [](const LaneRecord& lane) {
      return std::ranges::any_of(
          lane.slots, [](const SlotReport& slot) { return slot.measured.contribution_points.has_value(); });
    });
  })) << "no seed was felt: this would show little";
  PpoConfig two = options;
  two.population.devices = {parse_device("cpu"), parse_device("cpu")};
  PopulationTrainer shared = testing::small_environments(two);
  expect_same(played(shared, two), want);
  as_ranks(2, [&](ranks::World& world) {
    PopulationTrainer own(options.population, small_shards(options), at::kCPU, OnFailure::kRetire, {}, world);
    const std::vector<EpochRecord> got = played(own, options);
    if (world.leads()) expect_same(got, want);
  });
}

}  // namespace
}  // namespace espalier::train
