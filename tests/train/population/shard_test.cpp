#include "espalier/train/population/shard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

using testing::copy_of_lane;
using testing::expect_same_lane;
using testing::germinate;
using testing::kConvLight;
using testing::kConvSmall;
using testing::poison;
using testing::ScriptedController;
using testing::small_options;
using testing::small_setup;

// One lane's seed from germination to its removal, in the middle of a run.
std::shared_ptr<ScriptedController> full_life(int64_t lane) {
  auto controller = std::make_shared<ScriptedController>();
  controller->script[{lane, 1}] = germinate(0, kConvLight, 1, BlendOperator::kGate);
  controller->script[{lane, 4}] = {.op = SeedOp::kAdvance, .slot = 0};
  controller->script[{lane, 5}] = {.op = SeedOp::kAdvance, .slot = 0};
  controller->script[{lane, 6}] = {.op = SeedOp::kPrune, .slot = 0};
  return controller;
}

TEST(Shard, GivesTheSameBitsFromTheSameSeed) {
  PopulationConfig options = small_options(2);
  options.controller = "random";
  std::vector<std::map<std::string, at::Tensor>> lanes[2];
  for (auto& run : lanes) {
    testing::OneShard trainer(options, small_setup(options));
    for (int epoch = 0; epoch < 8; ++epoch) trainer.train_epoch();
    for (int64_t lane = 0; lane < 2; ++lane) run.push_back(copy_of_lane(trainer, lane));
  }
  for (size_t lane = 0; lane < 2; ++lane) expect_same_lane(lanes[0][lane], lanes[1][lane], "lane");
  options.seed = 6;
  testing::OneShard other(options, small_setup(options));
  other.train_epoch();
  EXPECT_FALSE(
      at::equal(copy_of_lane(other, 0)["host.classifier.weight"], lanes[0][0]["host.classifier.weight"]));
}

TEST(Shard, TrainsALaneAmongFourAsAmongFewer) {
  const PopulationConfig four = small_options(4), two = small_options(2), one = small_options(1);
  for (const int threads : {1, 2}) {  // how work is shared out must not depend on the lanes
    at::set_num_threads(threads);
    testing::OneShard wide(four, small_setup(four, full_life(1))), pair(two, small_setup(two, full_life(1))),
        alone(one, small_setup(one, full_life(1)));
    for (int epoch = 0; epoch < (threads == 1 ? 7 : 2); ++epoch) {
      const EpochRecord record = wide.train_epoch();
      const EpochRecord by_pair = pair.train_epoch(), by_one = alone.train_epoch();
      EXPECT_EQ(record.lanes[0].validated.loss, by_one.lanes[0].validated.loss);
      EXPECT_EQ(record.lanes[1].validated.loss, by_pair.lanes[1].validated.loss);
      expect_same_lane(copy_of_lane(wide, 0), copy_of_lane(alone, 0), "lane 0");
      expect_same_lane(copy_of_lane(wide, 1), copy_of_lane(pair, 1), "lane 1, which grows");
    }
  }
  at::set_num_threads(1);
}

TEST(Shard, LeavesOtherLanesAloneWhileOneGrows) {
  const PopulationConfig options = small_options(3);
  testing::OneShard bare(options, small_setup(options)), grown(options, small_setup(options, full_life(1)));
  std::set<SeedStage> seen;
  for (int epoch = 0; epoch < 8; ++epoch) {
    bare.train_epoch();
    grown.train_epoch();
    seen.insert(grown.lifecycle().at(1, 0).stage);
    for (const int64_t lane : {0, 2})
      expect_same_lane(copy_of_lane(bare, lane), copy_of_lane(grown, lane), "lane " + std::to_string(lane));
  }
  EXPECT_TRUE(seen.contains(SeedStage::kTraining) && seen.contains(SeedStage::kBlending) &&
              seen.contains(SeedStage::kHolding) && seen.contains(SeedStage::kEmbargoed));
}

TEST(Shard, MeasuresWhatASeedContributesAndHowItLearns) {
  const PopulationConfig options = small_options(2);
  const auto controller = full_life(1);
  testing::OneShard trainer(options, small_setup(options, controller));
  for (int epoch = 1; epoch <= 6; ++epoch) {
    const EpochRecord record = trainer.train_epoch();
    const SlotReport& slot = record.lanes[1].slots[0];
    EXPECT_FALSE(record.lanes[0].slots[0].measured.contribution_points);
    EXPECT_EQ(slot.measured.gradient_norm.has_value(), epoch >= 2);
    EXPECT_EQ(slot.measured.improvement_points.has_value(), epoch >= 2);
    EXPECT_EQ(slot.measured.contribution_points.has_value(), slot.state.amplitude > 0) << "epoch " << epoch;
    if (slot.state.amplitude == 0) continue;
    // By hand: what evaluation says with the slot's seeds left out.
    trainer.validation().pass(std::vector<int64_t>{0});
    const auto with = Evaluation::scores(trainer.validation().sums()[0]);
    const auto without = Evaluation::scores(trainer.validation().sums()[1]);
    EXPECT_EQ(*slot.measured.contribution_points, 100 * (with[1].accuracy - without[1].accuracy));
    // Lane 0 holds no seed there: it is not computed once more (HostBranches).
    EXPECT_NE(with[1].loss, without[1].loss);
  }
  EXPECT_EQ(controller->seen.size(), 12u);
  EXPECT_EQ(controller->seen.back().accuracies.size(), 6u);
}

TEST(Shard, RefusesGatesThatNoSeedCanPassBeforeDataIsRead) {
  PopulationConfig options = small_options(1);
  options.gates.min_gradient_norm = 2e3;
  EXPECT_ERROR(testing::OneShard(options, small_setup(options)), UsageError, "--gate-least-norm 2000",
               "--gate-largest-norm 1000");
  options.source.data = "cifar10:not/there";
  EXPECT_ERROR(shard_on(options.devices.front(), options, {}), UsageError, "--gate-least-norm 2000");
}

TEST(Shard, LetsASeedPassByTheThresholdsThatItIsTold) {
  for (const int64_t steps : {1, 3}) {
    PopulationConfig options = small_options(1);
    options.gates.min_training_steps = steps;
    const auto controller = std::make_shared<ScriptedController>();
    controller->script[{0, 1}] = germinate(0, kConvLight);
    controller->script[{0, 2}] = {.op = SeedOp::kAdvance, .slot = 0};  // one step of TRAINING is done
    testing::OneShard trainer(options, small_setup(options, controller));
    trainer.train_epoch();
    const EpochRecord record = trainer.train_epoch();
    EXPECT_EQ(record.lanes[0].gate.gate, grow::Gate::kG2);
    EXPECT_EQ(record.lanes[0].gate.passed(), steps == 1) << record.lanes[0].gate.summary();
  }
}

TEST(Shard, TellsGradientNormsAsOftenAsItIsAskedAndWhereverAGateNeedsOne) {
  PopulationConfig options = small_options(2);
  options.epochs = 10;
  testing::OneShard always(options, small_setup(options, full_life(1)));
  std::vector<EpochRecord> told;
  for (int epoch = 1; epoch <= 10; ++epoch) told.push_back(always.train_epoch());
  for (const int64_t every : {0, 3}) {
    options.telemetry_every = every;
    testing::OneShard trainer(options, small_setup(options, full_life(1)));
    int64_t num_told = 0, num_untold = 0;
    for (size_t epoch = 0; epoch < told.size(); ++epoch) {
      SCOPED_TRACE("every " + std::to_string(every) + ", epoch " + std::to_string(epoch));
      const EpochRecord record = trainer.train_epoch();
      EXPECT_EQ(record.lanes[1].trained.loss, told[epoch].lanes[1].trained.loss) << "it trains alike";
      const SlotReport &slot = record.lanes[1].slots[0], &full = told[epoch].lanes[1].slots[0];
      EXPECT_EQ(slot.state.stage, full.state.stage);
      const bool is_due = every > 0 && static_cast<int64_t>(epoch) % every == 0;
      const bool is_gated =
          slot.state.stage == SeedStage::kTraining || slot.state.stage == SeedStage::kHolding;
      const bool is_told = full.measured.gradient_norm && (is_due || is_gated);
      EXPECT_EQ(slot.measured.gradient_norm, is_told ? full.measured.gradient_norm : std::nullopt);
      EXPECT_EQ(slot.measured.gradient_ratio, is_told ? full.measured.gradient_ratio : std::nullopt);
      num_told += is_told;
      num_untold += full.measured.gradient_norm && !is_told;
    }
    EXPECT_GT(num_told, 0);
    EXPECT_GT(num_untold, 0);
  }
}

TEST(Shard, RollsALaneBackAtHalfItsRateAndNoOtherNotices) {
  const PopulationConfig options = small_options(3);
  testing::OneShard sound(options, small_setup(options)), broken(options, small_setup(options));
  sound.train_epoch();
  broken.train_epoch();
  const auto good = copy_of_lane(broken, 1);
  poison(broken, 1);
  sound.train_epoch();
  const EpochRecord record = broken.train_epoch();
  EXPECT_EQ(record.lanes[1].outcome, LaneOutcome::kRolledBack);
  EXPECT_EQ(record.lanes[1].rate_factor, 0.5);
  EXPECT_EQ(record.lanes[0].outcome, LaneOutcome::kTrained);
  expect_same_lane(copy_of_lane(broken, 1), good, "lane 1");
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const int64_t lane : {0, 2})
      expect_same_lane(copy_of_lane(sound, lane), copy_of_lane(broken, lane), "lane " + std::to_string(lane));
    sound.train_epoch();
    EXPECT_EQ(broken.train_epoch().lanes[1].outcome, LaneOutcome::kTrained);
  }
}

TEST(Shard, RestoresSeedsThatWereRemovedOrPlantedSince) {
  const PopulationConfig options = small_options(2);
  const auto controller = std::make_shared<ScriptedController>();
  controller->script[{1, 1}] = germinate(0, kConvLight);
  controller->script[{1, 2}] = germinate(2, kConvSmall);
  controller->script[{1, 3}] = {.op = SeedOp::kPrune, .slot = 0};
  controller->script[{1, 4}] = germinate(1, kConvSmall);
  testing::OneShard trainer(options, small_setup(options, controller));
  for (int epoch = 1; epoch <= 3; ++epoch) trainer.train_epoch();
  const auto good = copy_of_lane(trainer, 1);
  EXPECT_EQ(trainer.lifecycle().at(1, 0).stage, SeedStage::kPruned);
  const auto other = copy_of_lane(trainer, 0);
  poison(trainer, 1);
  EXPECT_EQ(trainer.train_epoch().lanes[1].outcome, LaneOutcome::kRolledBack);
  // As after epoch 3, before its decision: the seed in r0c0 is back.
  EXPECT_EQ(trainer.lifecycle().at(1, 0).stage, SeedStage::kTraining);
  EXPECT_EQ(trainer.lifecycle().at(1, 0).steps_in_stage, 2);
  expect_same_lane(copy_of_lane(trainer, 1), good, "lane 1");
  EXPECT_EQ(trainer.train_epoch().lanes[1].outcome, LaneOutcome::kTrained);
}

TEST(Shard, RetiresALaneThatFailsAFourthTimeAndKeepsItsLastGoodState) {
  const PopulationConfig options = small_options(2);
  testing::OneShard sound(options, small_setup(options)), broken(options, small_setup(options));
  sound.train_epoch();
  broken.train_epoch();
  const auto good = copy_of_lane(broken, 1);
  for (int failure = 1; failure <= 5; ++failure) {
    if (failure <= 4) poison(broken, 1);
    sound.train_epoch();
    const EpochRecord record = broken.train_epoch();
    EXPECT_EQ(record.lanes[1].outcome, failure <= 3 ? LaneOutcome::kRolledBack : LaneOutcome::kRetired);
    EXPECT_EQ(record.num_retired(), failure <= 3 ? 0 : 1);
    EXPECT_EQ(record.lanes[1].rate_factor, failure >= 3 ? 0.125 : 1.0 / (1 << failure));
    expect_same_lane(copy_of_lane(broken, 1), good, "lane 1");
    expect_same_lane(copy_of_lane(broken, 0), copy_of_lane(sound, 0), "lane 0");
  }
  EXPECT_TRUE(std::isfinite(broken.test()[1].loss));
}

// Finite, and far from anything that was learned.
void spoil(Shard& trainer, int64_t lane, const std::string& prefix) {
  torch::manual_seed(1);
  bool any = false;
  for (const auto& each : trainer.population().lane_values(lane))
    if (each.name.starts_with(prefix)) {
      each.tensor.normal_(0, 100);
      any = true;
    }
  EXPECT_TRUE(any) << prefix;
  trainer.population().refresh();
}

TEST(Shard, GoesBackWithoutTheSeedThatMadeItCollapseAndBarsItsSlot) {
  const PopulationConfig options = small_options(2);
  const auto controller = std::make_shared<ScriptedController>();
  controller->script[{1, 1}] = germinate(1, kConvLight);  // right before the classifier
  controller->script[{1, 4}] = {.op = SeedOp::kAdvance, .slot = 1};
  testing::OneShard trainer(options, small_setup(options, controller)), bare(options, small_setup(options));
  for (int epoch = 1; epoch <= 4; ++epoch) {
    trainer.train_epoch();
    bare.train_epoch();
  }
  const auto good = copy_of_lane(trainer, 1);
  spoil(trainer, 1, "r0c1.conv_light");
  bare.train_epoch();
  const EpochRecord record = trainer.train_epoch();
  EXPECT_EQ(record.lanes[1].outcome, LaneOutcome::kRolledBack);
  EXPECT_EQ(record.lanes[1].verdict, Verdict::kLossJumped);
  EXPECT_EQ(record.lanes[1].blamed, std::vector<int64_t>{1});
  EXPECT_EQ(record.lanes[1].rate_factor, 1) << "it was the seed, not the rate";
  EXPECT_EQ(record.lanes[0].verdict, Verdict::kSound);
  const SlotState& slot = trainer.lifecycle().at(1, 1);
  EXPECT_EQ(slot.stage, SeedStage::kPruned);
  EXPECT_FALSE(fault_in(slot)) << *fault_in(slot);
  for (const auto& [name, tensor] : copy_of_lane(trainer, 1))
    lanes::testing::expect_same_bits(tensor, good.at(name), name);
  expect_same_lane(copy_of_lane(trainer, 0), copy_of_lane(bare, 0), "lane 0");
  for (int epoch = 0; epoch < 3; ++epoch)
    EXPECT_EQ(trainer.train_epoch().lanes[1].outcome, LaneOutcome::kTrained);
  EXPECT_TRUE(is_barred(trainer.lifecycle().at(1, 1))) << "while the slot is cleaned up, and for good";
  EXPECT_FALSE(may_choose({.flags = kSlotBarred}, SeedOp::kGerminate));
}

TEST(Shard, KeepsASeedWhoseRemovalMadeTheLaneCollapse) {
  for (const int32_t steps : {0, 5}) {
    SCOPED_TRACE(std::to_string(steps) + " steps");
    PopulationConfig options = small_options(1);
    options.epochs = 12;
    const auto controller = std::make_shared<ScriptedController>();
    controller->script[{0, 1}] = germinate(1, kConvLight);
    controller->script[{0, 4}] = {.op = SeedOp::kAdvance, .slot = 1};
    controller->script[{0, 5}] = {.op = SeedOp::kAdvance, .slot = 1};
    controller->script[{0, 6}] = {.op = SeedOp::kPrune, .slot = 1, .steps = steps};
    testing::OneShard trainer(options, small_setup(options, controller));
    // Of a scheduled removal two steps went well.
    for (int epoch = 1; epoch <= (steps == 0 ? 6 : 8); ++epoch) trainer.train_epoch();
    const SlotState going = trainer.lifecycle().at(0, 1);
    ASSERT_TRUE(steps == 0 ? going.stage == SeedStage::kPruned : is_removing(going));
    spoil(trainer, 0, "host.classifier");
    const EpochRecord record = trainer.train_epoch();
    EXPECT_EQ(record.lanes[0].outcome, LaneOutcome::kRolledBack);
    EXPECT_EQ(record.lanes[0].blamed, std::vector<int64_t>{1});
    EXPECT_EQ(record.lanes[0].rate_factor, 1) << "it was the removal, not the rate";
    EXPECT_FALSE(record.lanes[0].compared_anew);
    const SlotState slot = trainer.lifecycle().at(0, 1);
    EXPECT_EQ(slot.stage, SeedStage::kHolding);
    EXPECT_EQ(slot.amplitude, steps == 0 ? 1 : going.amplitude);
    EXPECT_FALSE(fault_in(slot)) << *fault_in(slot);
    EXPECT_FALSE(may_choose(slot, SeedOp::kPrune));
    EXPECT_FALSE(may_choose(slot, SeedOp::kSetAmplitudeTarget));
    EXPECT_TRUE(may_choose(slot, SeedOp::kFossilize));
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_EQ(trainer.train_epoch().lanes[0].outcome, LaneOutcome::kTrained);
      EXPECT_EQ(trainer.lifecycle().at(0, 1).stage, SeedStage::kHolding);
      EXPECT_EQ(trainer.lifecycle().at(0, 1).amplitude, slot.amplitude);
    }
  }
}

// Also where the amplitude is what it was: the operator is not.
TEST(Shard, BlamesASeedThatIsBlendedOtherwiseAndComparesTheLaneAnewWithoutIt) {
  for (const float target : {1.f, 0.5f}) {
    SCOPED_TRACE("target " + std::to_string(target));
    PopulationConfig options = small_options(2);
    options.epochs = 12;
    testing::OneShard trainer(options, small_setup(options, testing::blended_otherwise(1, target)));
    for (int epoch = 1; epoch <= 6; ++epoch) trainer.train_epoch();
    ASSERT_EQ(trainer.lifecycle().at(1, 1).blend_operator, BlendOperator::kMultiply);
    spoil(trainer, 1, "host.classifier");
    const LaneRecord lane = trainer.train_epoch().lanes[1];
    EXPECT_EQ(lane.outcome, LaneOutcome::kRolledBack);
    EXPECT_EQ(lane.blamed, std::vector<int64_t>{1});
    EXPECT_EQ(lane.rate_factor, 1) << "it was the seed, not the rate";
    EXPECT_TRUE(lane.compared_anew);
    EXPECT_EQ(trainer.lifecycle().at(1, 1).stage, SeedStage::kPruned);
    EXPECT_TRUE(is_barred(trainer.lifecycle().at(1, 1)));
    // A network that is worse without its seed: it goes on from there.
    spoil(trainer, 1, "host.classifier");
    for (int epoch = 0; epoch < 3; ++epoch)
      EXPECT_EQ(trainer.train_epoch().lanes[1].outcome, LaneOutcome::kTrained);
    spoil(trainer, 0, "host.classifier");
    EXPECT_EQ(trainer.train_epoch().lanes[0].outcome, LaneOutcome::kRolledBack) << "it is compared as ever";
  }
}

TEST(Shard, EndsAnEpisodeWithTheSeedsThatItsLastEpochWentBackTo) {
  PopulationConfig options = small_options(1);
  options.epochs = 6;
  const auto controller = std::make_shared<ScriptedController>();
  controller->script[{0, 1}] = germinate(1, kConvLight, 3);
  controller->script[{0, 4}] = {.op = SeedOp::kAdvance, .slot = 1};
  testing::OneShard trainer(options, small_setup(options, controller));
  for (int epoch = 1; epoch <= 5; ++epoch) trainer.train_epoch();
  spoil(trainer, 0, "host.classifier");
  const LaneRecord lane = trainer.train_epoch().lanes[0];
  EXPECT_EQ(lane.outcome, LaneOutcome::kRolledBack);
  EXPECT_EQ(lane.slots[1].state.stage, SeedStage::kPruned);
  EXPECT_TRUE(is_barred(lane.slots[1].state));
}

TEST(Shard, CountsNoAccuracyWhereNothingIsThereToValidateWith) {
  const PopulationConfig options = small_options(1);
  const auto controller = std::make_shared<ScriptedController>();
  testing::SmallSetup setup = small_setup(options, controller);
  setup.dataset =
      data::testing::resident(data::testing::small_dataset({data::testing::image_spec(8, 8)}, 40, 20));
  testing::OneShard trainer(options, setup);
  for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch();
  ASSERT_EQ(controller->seen.size(), 2u);
  EXPECT_TRUE(controller->seen.back().accuracies.empty());
}

// Whatever rises would be a jump, but for the floor: so many times the loss of guessing.
TEST(Shard, FlagsNoJumpBelowTheFloorThatItIsTold) {
  for (const double floor : {0.0, 100.0}) {
    PopulationConfig options = small_options(4);
    options.epochs = 12;
    options.governor = {.ratio = 1, .spread = 0, .margin = 0, .floor = floor};
    testing::OneShard trainer(options, small_setup(options));
    int64_t jumps = 0;
    for (int epoch = 0; epoch < 12; ++epoch)
      for (const LaneRecord& lane : trainer.train_epoch().lanes)
        jumps += lane.verdict == Verdict::kLossJumped;
    EXPECT_EQ(jumps > 0, floor == 0) << jumps;
  }
}

TEST(Shard, TellsTheAccuracyOfTheStateThatALaneStandsAt) {
  PopulationConfig options = small_options(2);
  options.epochs = 12;
  const auto controller = std::make_shared<ScriptedController>();
  controller->script[{1, 1}] = germinate(1, kConvLight);
  controller->script[{1, 4}] = {.op = SeedOp::kAdvance, .slot = 1};
  testing::OneShard trainer(options, small_setup(options, controller));
  double good = 0;
  for (int epoch = 1; epoch <= 4; ++epoch) {
    const EpochRecord record = trainer.train_epoch();
    for (const LaneRecord& lane : record.lanes) EXPECT_EQ(lane.good_accuracy, lane.validated.accuracy);
    good = record.lanes[1].good_accuracy;
  }
  spoil(trainer, 1, "host.classifier");
  LaneRecord lane = trainer.train_epoch().lanes[1];
  ASSERT_EQ(lane.outcome, LaneOutcome::kRolledBack);
  ASSERT_FALSE(lane.compared_anew);
  EXPECT_EQ(lane.good_accuracy, good) << "of the epoch that it went back to";
  EXPECT_NE(lane.validated.accuracy, good) << "this would show little";
}

TEST(Shard, KnowsNoAccuracyOfALaneThatLostAFeltSeedUntilItIsScoredAgain) {
  PopulationConfig options = small_options(2);
  options.epochs = 12;
  testing::OneShard trainer(options, small_setup(options, testing::blended_otherwise(1, 1)));
  for (int epoch = 1; epoch <= 6; ++epoch) trainer.train_epoch();
  spoil(trainer, 1, "host.classifier");
  LaneRecord lane = trainer.train_epoch().lanes[1];
  ASSERT_TRUE(lane.compared_anew);
  EXPECT_TRUE(std::isnan(lane.good_accuracy));
  poison(trainer, 1);  // back once more, to the state without the seed
  lane = trainer.train_epoch().lanes[1];
  ASSERT_EQ(lane.outcome, LaneOutcome::kRolledBack);
  EXPECT_TRUE(std::isnan(lane.good_accuracy));
  lane = trainer.train_epoch().lanes[1];
  ASSERT_EQ(lane.outcome, LaneOutcome::kTrained);
  EXPECT_EQ(lane.good_accuracy, lane.validated.accuracy);
}

TEST(Shard, HalvesTheRateOfALaneThatCollapsesByItselfAndNeverGivesItUp) {
  PopulationConfig options = small_options(1);
  options.epochs = 12;
  testing::OneShard trainer(options, small_setup(options));
  for (int epoch = 1; epoch <= 4; ++epoch) trainer.train_epoch();
  const auto good = copy_of_lane(trainer, 0);
  for (int failure = 1; failure <= 5; ++failure) {
    spoil(trainer, 0, "host.classifier");
    const EpochRecord record = trainer.train_epoch();
    EXPECT_EQ(record.lanes[0].outcome, LaneOutcome::kRolledBack) << failure;
    EXPECT_EQ(record.lanes[0].rate_factor, failure >= 3 ? 0.125 : 1.0 / (1 << failure));
    EXPECT_EQ(record.lanes[0].num_rollbacks, failure);
    expect_same_lane(copy_of_lane(trainer, 0), good, "lane 0");
  }
  EXPECT_EQ(trainer.train_epoch().lanes[0].outcome, LaneOutcome::kTrained);
}

// Calls `change` once, after the last batch of the next epoch: training is over, validation is not.
void after_the_next_epoch_trained(testing::OneShard& trainer, std::function<void()> change) {
  trainer.at_every_batch([&trainer, change = std::move(change), batches = int64_t{0}]() mutable {
    if (++batches == trainer.batches_per_epoch()) change();
  });
}

TEST(Shard, GoesBackToBeforeTheEpochInWhoseLastBatchANetworkBroke) {
  PopulationConfig options = small_options(2);
  options.epochs = 12;
  const auto controller = std::make_shared<ScriptedController>();
  testing::OneShard trainer(options, small_setup(options, controller));
  for (int epoch = 1; epoch <= 5; ++epoch) trainer.train_epoch();
  const auto good = copy_of_lane(trainer, 1);
  after_the_next_epoch_trained(trainer, [&] { spoil(trainer, 1, "host.classifier"); });
  const EpochRecord broken = trainer.train_epoch();
  EXPECT_EQ(broken.lanes[1].verdict, Verdict::kDoubtful);
  EXPECT_EQ(broken.lanes[1].outcome, LaneOutcome::kTrained);
  EXPECT_EQ(broken.lanes[0].verdict, Verdict::kSound);
  EXPECT_EQ(controller->seen.back().lane, 1) << "it is asked as ever";
  EXPECT_EQ(controller->seen.back().accuracies.size(), 6u);
  const LaneRecord lane = trainer.train_epoch().lanes[1];
  EXPECT_EQ(lane.verdict, Verdict::kLossJumped);
  EXPECT_EQ(lane.outcome, LaneOutcome::kRolledBack);
  EXPECT_EQ(lane.rate_factor, 0.5);
  expect_same_lane(copy_of_lane(trainer, 1), good, "lane 1");
  EXPECT_EQ(trainer.train_epoch().lanes[1].outcome, LaneOutcome::kTrained);
  EXPECT_EQ(controller->seen.back().accuracies.size(), 6u) << "without that of the broken network";
}

// Validation alone, as where running statistics lag behind.
TEST(Shard, GoesOnWithANetworkThatOnlyValidationDoubts) {
  PopulationConfig options = small_options(2);
  options.epochs = 12;
  testing::OneShard trainer(options, small_setup(options));
  for (int epoch = 1; epoch <= 5; ++epoch) trainer.train_epoch();
  after_the_next_epoch_trained(trainer, [&] {
    for (const auto& each : trainer.population().lane_values(1))
      if (each.name.find("running_var") != std::string::npos) each.tensor.mul_(1e-6);
    trainer.population().refresh();
  });
  EXPECT_EQ(trainer.train_epoch().lanes[1].verdict, Verdict::kDoubtful);
  EXPECT_EQ(trainer.train_epoch().lanes[1].verdict, Verdict::kSound);
  const auto good = copy_of_lane(trainer, 1);
  poison(trainer, 1);
  EXPECT_EQ(trainer.train_epoch().lanes[1].outcome, LaneOutcome::kRolledBack);
  expect_same_lane(copy_of_lane(trainer, 1), good, "lane 1");
}

TEST(Shard, BlamesASeedThatWasPlantedAndFeltSinceTheLastGoodState) {
  PopulationConfig options = small_options(1);
  options.epochs = 12;
  options.gates.min_training_steps = 0;
  const auto controller = std::make_shared<ScriptedController>();
  controller->script[{0, 5}] = germinate(1, kConvLight);
  controller->script[{0, 6}] = {.op = SeedOp::kAdvance, .slot = 1};
  testing::OneShard trainer(options, small_setup(options, controller));
  for (int epoch = 1; epoch <= 5; ++epoch) trainer.train_epoch();
  const auto good = copy_of_lane(trainer, 0);
  after_the_next_epoch_trained(trainer, [&] { spoil(trainer, 0, "host.classifier"); });
  EXPECT_EQ(trainer.train_epoch().lanes[0].verdict, Verdict::kDoubtful);
  const LaneRecord lane = trainer.train_epoch().lanes[0];
  EXPECT_GT(lane.slots[1].state.amplitude, 0) << "it was not felt: this would show nothing";
  EXPECT_EQ(lane.outcome, LaneOutcome::kRolledBack);
  EXPECT_EQ(lane.blamed, std::vector<int64_t>{1});
  EXPECT_EQ(lane.rate_factor, 1);
  EXPECT_FALSE(lane.compared_anew) << "it is what it was";
  const SlotState slot = trainer.lifecycle().at(0, 1);
  EXPECT_EQ(slot.stage, SeedStage::kDormant);
  EXPECT_FALSE(may_choose(slot, SeedOp::kGerminate));
  expect_same_lane(copy_of_lane(trainer, 0), good, "lane 0");
  EXPECT_EQ(trainer.train_epoch().lanes[0].outcome, LaneOutcome::kTrained);
}

// It breaks in the last batch of an epoch that is not validated, so that this counts as good.
TEST(Shard, ComparesALaneAnewThatGoesBackInARowWithNothingLeftToChange) {
  PopulationConfig options = small_options(1);
  options.epochs = 20;
  options.validate_every = 20;
  testing::OneShard trainer(options, small_setup(options));
  for (int epoch = 1; epoch <= 5; ++epoch) trainer.train_epoch();
  after_the_next_epoch_trained(trainer, [&] { spoil(trainer, 0, "host.classifier"); });
  EXPECT_EQ(trainer.train_epoch().lanes[0].verdict, Verdict::kSound);
  for (int failure = 1; failure <= Shard::kMaxHalvings + Shard::kMaxFutile; ++failure) {
    const LaneRecord lane = trainer.train_epoch().lanes[0];
    EXPECT_EQ(lane.outcome, LaneOutcome::kRolledBack) << failure;
    EXPECT_EQ(lane.compared_anew, failure == Shard::kMaxHalvings + Shard::kMaxFutile) << failure;
  }
  std::vector<double> losses;
  for (int epoch = 0; epoch < 5; ++epoch) {
    const LaneRecord lane = trainer.train_epoch().lanes[0];
    EXPECT_EQ(lane.outcome, LaneOutcome::kTrained) << epoch;
    losses.push_back(lane.trained.loss);
  }
  EXPECT_LT(losses.back(), losses.front()) << "it learns on";
}

TEST(Shard, EndsTheEpisodeOfALaneThatCollapsesWhereAPolicyLearns) {
  const PopulationConfig options = small_options(2);
  testing::SmallSetup setup = small_setup(options);
  setup.on_failure = OnFailure::kRetire;
  testing::OneShard trainer(options, setup);
  for (int epoch = 1; epoch <= 4; ++epoch) trainer.train_epoch();
  spoil(trainer, 1, "host.classifier");
  const EpochRecord record = trainer.train_epoch();
  EXPECT_EQ(record.lanes[1].outcome, LaneOutcome::kRetired);
  EXPECT_EQ(record.lanes[1].verdict, Verdict::kLossJumped);
  EXPECT_LT(record.lanes[1].reward.sum(), record.lanes[0].reward.sum() - 0.9) << "the failure was paid for";
  const EpochRecord next = trainer.train_epoch();
  EXPECT_EQ(next.lanes[1].outcome, LaneOutcome::kRetired);
  EXPECT_FALSE(next.lanes[1].reward.counts);
  EXPECT_TRUE(next.lanes[0].reward.counts);
}

TEST(Shard, KeepsSeedsThatAreNotFiniteOutOfTheHostWhileTheyTrain) {
  const PopulationConfig options = small_options(1);
  testing::OneShard bare(options, small_setup(options)), grown(options, small_setup(options, full_life(0)));
  for (int epoch = 1; epoch <= 2; ++epoch) {
    bare.train_epoch();
    grown.train_epoch();
  }
  for (const auto& each : grown.population().lane_values(0))
    if (each.name.starts_with("r0c0.conv_light.conv"))
      each.tensor.fill_(std::numeric_limits<float>::infinity());
  const EpochRecord record = grown.train_epoch();
  bare.train_epoch();
  EXPECT_EQ(record.lanes[0].outcome, LaneOutcome::kTrained);
  EXPECT_FALSE(record.lanes[0].slots[0].measured.finite);
  const auto with_seed = copy_of_lane(grown, 0);
  for (const auto& [name, tensor] : copy_of_lane(bare, 0))
    lanes::testing::expect_same_bits(tensor, with_seed.at(name), name);
}

TEST(Shard, SharesOnePassOutOverTheLanesOfAPlanThatSplits) {
  PopulationConfig options = small_options(2);
  EXPECT_EQ(testing::OneShard(options, small_setup(options)).batches_per_epoch(), 4);
  options.plan = data::PlanKind::kSplit;
  EXPECT_EQ(testing::OneShard(options, small_setup(options)).batches_per_epoch(), 2);
}

}  // namespace
}  // namespace espalier::train
