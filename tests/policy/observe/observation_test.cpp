#include "espalier/policy/observe/observation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/policy/num_seeds.h"
#include "tests/policy/packed.h"
#include "tests/policy/tensors.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;
using testing::packed;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

ObserverOptions options(int64_t lanes, int64_t slots, at::Device device = at::kCPU) {
  return {.lanes = lanes,
          .space = {.num_slots = slots, .num_blueprints = 5},
          .episode_length = 10,
          .device = device};
}

at::Tensor number(int64_t value) {
  return at::full({1}, value, at::kLong);
}

// One lane whose steps are told one after the other.
class OneLane {
 public:
  explicit OneLane(int64_t slots)
      : readings(empty_raw_observation(options(1, slots))), observer(options(1, slots)) {}

  void set(LaneReading which, float value) { readings.lanes[0][static_cast<int>(which)] = value; }
  void set(int64_t slot, SlotReading which, float value) {
    readings.slots[0][slot][static_cast<int>(which)] = value;
  }
  void set(const std::vector<SlotState>& slots) { readings.states.copy_(packed({slots})); }

  void observe(int64_t last_op = 0) {
    observer.observe(readings, at::full({1}, last_op, at::kLong), number(step), at::full({1}, step == 0));
    ++step;
  }
  float operator()(LaneFeature which, int offset = 0) const {
    return observer.seen().features[0][static_cast<int>(which) + offset].item<float>();
  }
  float operator()(int64_t slot, SlotFeature which, int offset = 0) const {
    return observer.seen()
        .features[0][kNumLaneFeatures + slot * kNumSlotFeatures + static_cast<int>(which) + offset]
        .item<float>();
  }

  RawObservation readings;
  Observer observer;
  int64_t step = 0;
};

TEST(Observation, TellsHowALaneTrainsAndWhatChanged) {
  OneLane lane(2);
  lane.set(LaneReading::kTrainLoss, 2.5f);
  lane.set(LaneReading::kValidationLoss, 3);
  lane.set(LaneReading::kTrainAccuracy, 0.25f);
  lane.set(LaneReading::kValidationAccuracy, 0.5f);
  lane.set(LaneReading::kGradientNorm, 0.75f);
  lane.set(LaneReading::kAddedParameters, 1.5f);
  lane.set(LaneReading::kBudgetUsed, 0.5f);
  lane.observe(3);
  EXPECT_FLOAT_EQ(lane(LaneFeature::kProgress), 0);
  EXPECT_FLOAT_EQ(lane(LaneFeature::kTrainLoss), std::log(3.5f));
  EXPECT_FLOAT_EQ(lane(LaneFeature::kValidationLoss), std::log(4.0f));
  EXPECT_FLOAT_EQ(lane(LaneFeature::kTrainAccuracy), 0.25f);
  EXPECT_FLOAT_EQ(lane(LaneFeature::kValidationAccuracy), 0.5f);
  EXPECT_FLOAT_EQ(lane(LaneFeature::kGradientNorm), std::log(751.0f));
  EXPECT_FLOAT_EQ(lane(LaneFeature::kAddedParameters), std::log(2.5f));
  EXPECT_FLOAT_EQ(lane(LaneFeature::kBudgetUsed), std::log(1.5f));
  for (const LaneFeature change : {LaneFeature::kTrainLossChange, LaneFeature::kValidationLossChange,
                                   LaneFeature::kTrainAccuracyChange, LaneFeature::kValidationAccuracyChange})
    EXPECT_EQ(lane(change), 0) << "an episode begins without a past";
  for (int op = 0; op < kNumSeedOps; ++op) EXPECT_EQ(lane(LaneFeature::kFirstOp, op), op == 3);

  lane.set(LaneReading::kTrainLoss, 1.5f);
  lane.set(LaneReading::kValidationLoss, 4);
  lane.set(LaneReading::kTrainAccuracy, 0.35f);
  lane.set(LaneReading::kValidationAccuracy, 0.47f);
  lane.observe();
  EXPECT_FLOAT_EQ(lane(LaneFeature::kProgress), 0.1f);
  EXPECT_FLOAT_EQ(lane(LaneFeature::kTrainLossChange), -std::log(2.0f));
  EXPECT_FLOAT_EQ(lane(LaneFeature::kValidationLossChange), std::log(2.0f));
  EXPECT_NEAR(lane(LaneFeature::kTrainAccuracyChange), std::log(11), 1e-5);
  EXPECT_NEAR(lane(LaneFeature::kValidationAccuracyChange), -std::log(4), 1e-5);
  EXPECT_FLOAT_EQ(lane(LaneFeature::kBestAccuracy), 0.5f);
  EXPECT_NEAR(lane(LaneFeature::kBelowBest), std::log(4), 1e-5);
}

TEST(Observation, CountsAPlateauUntilAccuracyHasRisenByATenthOfAPoint) {
  OneLane lane(1);
  const auto plateau_at = [&](float accuracy) {
    lane.set(LaneReading::kValidationAccuracy, accuracy);
    lane.observe();
    return std::lround(std::expm1(lane(LaneFeature::kPlateau)));
  };
  EXPECT_EQ(plateau_at(0.5f), 0);
  EXPECT_EQ(plateau_at(0.4f), 1);
  EXPECT_EQ(plateau_at(0.5005f), 2);
  EXPECT_EQ(plateau_at(0.5009f), 3);
  EXPECT_EQ(plateau_at(0.502f), 0);  // slow, and yet a rise: it is measured from where the plateau began
  EXPECT_EQ(plateau_at(0.502f), 1);
}

TEST(Observation, TellsTheStateOfEverySlot) {
  OneLane lane(3);
  lane.set({{},
            {.stage = SeedStage::kBlending,
             .blend_operator = BlendOperator::kGate,
             .flags = kSlotRamping,
             .blueprint = 4,
             .amplitude = 0.25f,
             .target = 0.7f,
             .ramp_steps = 8,
             .ramp_done = 2,
             .age_steps = 6,
             .steps_in_stage = 2,
             .num_seeds = 3},
            {.stage = SeedStage::kEmbargoed, .steps_in_stage = 1, .num_seeds = 1}});
  lane.set(LaneReading::kGradientNorm, 3);
  lane.set(1, SlotReading::kGradientNorm, 1);
  lane.observe();
  for (int64_t slot = 0; slot < 3; ++slot) {
    const int stage = slot == 0 ? 0 : slot == 1 ? 3 : 7;
    for (int i = 0; i < kNumSeedStages; ++i)
      EXPECT_EQ(lane(slot, SlotFeature::kFirstStage, i), i == stage) << slot << " " << i;
    for (int i = 0; i < kNumBlendOperators; ++i)
      EXPECT_EQ(lane(slot, SlotFeature::kFirstOperator, i), slot == 1 && i == 2) << slot << " " << i;
  }
  EXPECT_FLOAT_EQ(lane(1, SlotFeature::kAmplitude), 0.25f);
  EXPECT_FLOAT_EQ(lane(1, SlotFeature::kTarget), 0.7f);
  EXPECT_EQ(lane(1, SlotFeature::kRamping), 1);
  EXPECT_EQ(lane(1, SlotFeature::kRemoving), 0);
  EXPECT_FLOAT_EQ(lane(1, SlotFeature::kRampDone), 0.25f);
  EXPECT_FLOAT_EQ(lane(1, SlotFeature::kAge), std::log(7.0f));
  EXPECT_FLOAT_EQ(lane(1, SlotFeature::kStepsInStage), std::log(3.0f));
  EXPECT_FLOAT_EQ(lane(1, SlotFeature::kSeedsPlanted), std::log(4.0f));
  EXPECT_FLOAT_EQ(lane(1, SlotFeature::kGradientNorm), std::log(1001.0f));
  EXPECT_FLOAT_EQ(lane(1, SlotFeature::kGradientShare), 0.25f);
  EXPECT_EQ(lane(1, SlotFeature::kGradientHealth), 1);
  EXPECT_FLOAT_EQ(lane(LaneFeature::kSeedsHeld), 1.0f / 3);
  EXPECT_FLOAT_EQ(lane(LaneFeature::kSeedsPlanted), std::log(5.0f));

  const SlotFields& fields = lane.observer.fields();
  EXPECT_TRUE(at::equal(fields.stage[0], at::tensor({0, 3, 7}, at::kLong)));
  EXPECT_TRUE(at::equal(fields.flags[0], at::tensor({0, 1, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(fields.age_steps[0], at::tensor({0, 6, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(fields.num_seeds, testing::num_seeds_of(fields.stage)));
  EXPECT_TRUE(at::equal(lane.observer.seen().blueprints[0], at::tensor({-1, 4, -1}, at::kLong)));
}

// What is asked of all slots at once on the device is what the core says of each.
TEST(Observation, AsksAllSlotsWhatTheCoreAsksOne) {
  std::vector<SlotState> states;
  for (int stage = 0; stage < kNumSeedStages; ++stage)
    for (const float amplitude : {0.0f, 1e-30f, 0.5f, 1.0f, kNaN})
      for (const uint8_t flags : {uint8_t{0}, kSlotRamping, kSlotRemoving, kSlotBarred})
        states.push_back({.stage = static_cast<SeedStage>(stage), .flags = flags, .amplitude = amplitude});
  const at::Tensor bytes = packed({states, states});
  const at::Tensor holds = holds_seed(bytes), undecided = is_undecided(bytes);
  for (size_t slot = 0; slot < states.size(); ++slot) {
    const SlotState& state = states[slot];
    const auto at = static_cast<int64_t>(slot);
    EXPECT_EQ(holds[1][at].item<bool>(), espalier::holds_seed(state.stage)) << name_of(state.stage);
    EXPECT_EQ(undecided[1][at].item<bool>(), espalier::is_undecided(state))
        << name_of(state.stage) << " at " << state.amplitude;
  }
}

TEST(Observation, TellsAVanishedAndAnExplodedGradientFromAHealthyOne) {
  OneLane lane(1);
  lane.set({{.stage = SeedStage::kTraining, .blueprint = 1, .num_seeds = 1}});
  const auto health = [&](float norm) {
    lane.set(0, SlotReading::kGradientNorm, norm);
    lane.observe();
    return lane(0, SlotFeature::kGradientHealth);
  };
  EXPECT_EQ(health(0), 0);
  EXPECT_EQ(health(0.1f), 1);
  EXPECT_EQ(health(2e3f), 0);
  EXPECT_EQ(health(kInf), 0);
  EXPECT_EQ(health(kNaN), kNotMeasured);
  EXPECT_EQ(lane(0, SlotFeature::kGradientNorm), kNotMeasured);
  EXPECT_EQ(lane(0, SlotFeature::kGradientShare), kNotMeasured);
}

TEST(Observation, CallsHealthyWhatItsOptionsSay) {
  ObserverOptions told = options(1, 1);
  told.least_healthy_norm = 0.5;
  told.largest_healthy_norm = 2;
  Observer observer(told);
  RawObservation readings = empty_raw_observation(told);
  readings.states = testing::packed({{{.stage = SeedStage::kTraining, .blueprint = 1, .num_seeds = 1}}});
  for (const auto& [norm, healthy] :
       std::vector<std::pair<double, float>>{{0.4, 0.0f}, {0.5, 1.0f}, {2, 1.0f}, {2.1, 0.0f}}) {
    readings.slots.select(2, static_cast<int64_t>(SlotReading::kGradientNorm)).fill_(norm);
    observer.observe(readings, at::zeros({1}, at::kLong), at::zeros({1}, at::kLong),
                     at::zeros({1}, at::kBool));
    EXPECT_EQ(observer.seen()
                  .features[0][kNumLaneFeatures + static_cast<int64_t>(SlotFeature::kGradientHealth)]
                  .item<float>(),
              healthy)
        << norm;
  }
}

TEST(Observation, RemembersTheLastContributionOfASeedAndForgetsItWithTheSeed) {
  OneLane lane(1);
  const std::vector<SlotState> seed{{.stage = SeedStage::kHolding, .blueprint = 1, .num_seeds = 1}};
  const auto see = [&](float points) {
    lane.set(0, SlotReading::kContributionPoints, points);
    lane.observe();
    return std::pair(lane(0, SlotFeature::kContribution), lane(0, SlotFeature::kContributionAge));
  };
  lane.set(seed);
  EXPECT_EQ(see(kNaN), std::pair(kNoContribution, kNotMeasured));
  EXPECT_EQ(see(-3), std::pair(symlog(-3), 0.0f));
  EXPECT_EQ(see(kNaN), std::pair(symlog(-3), symlog(1)));
  EXPECT_EQ(see(kNaN), std::pair(symlog(-3), symlog(2)));
  EXPECT_EQ(see(2), std::pair(symlog(2), 0.0f));
  lane.set({{.stage = SeedStage::kPruned, .num_seeds = 1}});
  EXPECT_EQ(see(kNaN), std::pair(kNoContribution, kNotMeasured));
  lane.set(seed);
  EXPECT_EQ(see(kNaN), std::pair(kNoContribution, kNotMeasured)) << "another seed in the same slot";
  EXPECT_EQ(see(1), std::pair(symlog(1), 0.0f));
  lane.step = 0;
  EXPECT_EQ(see(kNaN), std::pair(kNoContribution, kNotMeasured)) << "another episode";
  EXPECT_LT(kNoContribution, symlog(-100));
}

// Random readings and states, most of them absurd.
RawObservation wild_readings(int64_t lanes, int64_t slots, uint32_t seed) {
  std::mt19937 random(seed);
  const auto value = [&] {
    constexpr float kWild[] = {kNaN, kInf, -kInf, 3e38f, -3e38f, 1e-40f, 0, 0.5f, -2, 1e6f, 7};
    return kWild[random() % std::size(kWild)];
  };
  RawObservation readings = empty_raw_observation(options(lanes, slots));
  for (const at::Tensor& tensor : {readings.lanes, readings.slots})
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.mutable_data_ptr<float>()[i] = value();
  auto* bytes = readings.states.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < readings.states.numel(); ++i) bytes[i] = static_cast<uint8_t>(random());
  // Every other slot is of a known stage, since those are read further.
  for (int64_t i = 0; i < lanes * slots; i += 2)
    bytes[i * kSlotStateBytes] = static_cast<uint8_t>(random() % kNumSeedStages);
  return readings;
}

TEST(Observation, IsFiniteWhateverComesIn) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Observer observer(options(7, 3));
    for (int64_t step = 0; step < 4; ++step) {
      observer.observe(wild_readings(7, 3, seed * 100 + static_cast<uint32_t>(step)),
                       at::full({7}, step * 1'000'000'007 - 5, at::kLong), number(step * 1'000'000'007 - 3),
                       at::full({7}, step == 0));
      EXPECT_TRUE(observer.seen().features.isfinite().all().item<bool>());
      EXPECT_LE(observer.seen().features.abs().max().item<float>(), 22);  // symlog(1e6 / 1e-3) is 20.7
      EXPECT_GE(observer.seen().blueprints.min().item<int64_t>(), -1);
      EXPECT_LT(observer.seen().blueprints.max().item<int64_t>(), 5);
    }
  }
}

TEST(Observation, OfALaneDoesNotDependOnItsNeighbours) {
  const RawObservation all = wild_readings(5, 3, 1);
  Observer together(options(5, 3));
  together.observe(all, at::arange(5), number(2), bools({0, 1, 0, 1, 0}));
  for (int64_t lane = 0; lane < 5; ++lane) {
    Observer alone(options(1, 3));
    alone.observe({all.lanes.narrow(0, lane, 1), all.slots.narrow(0, lane, 1), all.states.narrow(0, lane, 1)},
                  at::full({1}, lane), number(2), bools({lane % 2}));
    EXPECT_TRUE(at::equal(alone.seen().features[0], together.seen().features[lane])) << lane;
  }
}

TEST(Observation, OfALaneThatBeginsLeavesTheOthersTheirPast) {
  Observer observer(options(2, 1));
  RawObservation readings = empty_raw_observation(options(2, 1));
  const int64_t change = static_cast<int64_t>(LaneFeature::kValidationAccuracyChange);
  for (int64_t step = 0; step < 2; ++step) {
    readings.lanes.select(1, static_cast<int64_t>(LaneReading::kValidationAccuracy))
        .fill_(step == 0 ? 0.1 : 0.2);
    observer.observe(readings, at::zeros({2}, at::kLong), number(step), bools({step == 0, 1}));
  }
  EXPECT_NEAR(observer.seen().features[0][change].item<float>(), std::log(11), 1e-5);
  EXPECT_EQ(observer.seen().features[1][change].item<float>(), 0);
}

TEST(Observation, ContinuesFromASavedState) {
  Observer first(options(4, 2)), second(options(4, 2));
  const auto observe = [](Observer& observer, int64_t step) {
    observer.observe(wild_readings(4, 2, static_cast<uint32_t>(step)), at::zeros({4}, at::kLong),
                     number(step), at::full({4}, step == 0));
  };
  for (int64_t step = 0; step < 3; ++step) observe(first, step);
  const std::vector<NamedTensor> saved = first.state(), read = second.state();
  for (size_t i = 0; i < saved.size(); ++i) read[i].tensor.copy_(saved[i].tensor);
  observe(first, 3);
  observe(second, 3);
  EXPECT_TRUE(at::equal(first.seen().features, second.seen().features));
}

TEST(Observation, NamesTheArgumentThatDoesNotFit) {
  Observer observer(options(2, 3));
  const at::Tensor ops = at::zeros({2}, at::kLong), clears = bools({0, 0});
  RawObservation readings = empty_raw_observation(options(2, 3));
  EXPECT_ERROR(observer.observe(readings, at::zeros({3}, at::kLong), number(0), clears), c10::Error,
               "last_op", "[3]");
  EXPECT_ERROR(observer.observe(readings, ops, at::zeros({1}), clears), c10::Error, "step", "Float");
  readings.states = at::zeros({2, 3, 7}, at::kByte);
  EXPECT_ERROR(observer.observe(readings, ops, number(0), clears), c10::Error, "states", "[2, 3, 7]");
  EXPECT_ERROR(Observer(options(0, 3)), c10::Error, "lanes", "0");
}

TEST(ObservationCuda, EqualsTheCpu) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const int64_t lanes : {1, 31, 32, 33, 131}) {
    Observer cpu(options(lanes, 3)), gpu(options(lanes, 3, at::kCUDA));
    for (int64_t step = 0; step < 3; ++step) {
      const RawObservation readings = wild_readings(lanes, 3, static_cast<uint32_t>(step));
      const at::Tensor ops = at::arange(lanes).remainder(7), clears = at::full({lanes}, step == 0);
      cpu.observe(readings, ops, number(step), clears);
      gpu.observe({readings.lanes.cuda(), readings.slots.cuda(), readings.states.cuda()}, ops.cuda(),
                  number(step).cuda(), clears.cuda());
      // log1p is rounded differently: a few units in the last place of 20.
      EXPECT_TRUE(at::allclose(gpu.seen().features.cpu(), cpu.seen().features, 1e-6, 1e-5));
      EXPECT_TRUE(at::equal(gpu.seen().blueprints.cpu(), cpu.seen().blueprints));
      EXPECT_TRUE(at::equal(gpu.fields().stage.cpu(), cpu.fields().stage));
      EXPECT_TRUE(at::equal(gpu.fields().flags.cpu(), cpu.fields().flags));
      EXPECT_TRUE(at::equal(gpu.fields().age_steps.cpu(), cpu.fields().age_steps));
      EXPECT_TRUE(at::equal(gpu.fields().num_seeds.cpu(), cpu.fields().num_seeds));
      for (size_t i = 0; i < cpu.state().size(); ++i)
        EXPECT_TRUE(at::allclose(gpu.state()[i].tensor.cpu(), cpu.state()[i].tensor, 1e-6, 1e-5,
                                 /*equal_nan=*/true))
            << cpu.state()[i].name;
    }
  }
}

}  // namespace
}  // namespace espalier::policy
