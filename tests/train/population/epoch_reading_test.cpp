// The one reading of an epoch against the same arithmetic on the host, number by number.
#include "espalier/train/population/epoch_reading.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/train/control/small_ppo.h"

namespace espalier::train {
namespace {

using policy::LaneReading;
using policy::SlotReading;
using testing::small_ppo;
using testing::small_shards;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kLanes = 7, kSlots = 4;

// What an epoch might leave: some of it not finite, seeds in all stages.
struct RandomEpoch {
  explicit RandomEpoch(uint64_t seed) {
    torch::manual_seed(seed);
    trained = at::rand({StepMetrics::num_rows(kSlots), kLanes}, at::kDouble) * 30;
    trained.select(0, StepMetrics::kNonFinite).zero_();
    trained[StepMetrics::kNonFinite][1] = 2;
    trained[StepMetrics::kFirstSlot + 1].fill_(0);  // a seed without parameters
    trained[StepMetrics::kFirstSlot + 2][3] = std::numeric_limits<double>::infinity();
    validated = at::rand({1 + kSlots, 3, kLanes}, at::kDouble) * 20;
    validated.select(1, 2).fill_(20);
    validated[2].zero_();  // slot 1 was not asked about
    validated[0][0][5] = kNaN;
    const at::Tensor stages = at::randint(kNumSeedStages, {kLanes, kSlots}, at::kLong);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      std::vector<SlotState> slots(kSlots);
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        SlotState& state = slots[static_cast<size_t>(slot)];
        state.stage = static_cast<SeedStage>(stages[lane][slot].item<int64_t>());
        state.amplitude = lane % 3 == 0 ? 0.0f : 0.5f;
      }
      states.push_back(slots);
    }
  }

  at::Tensor trained, validated;
  std::vector<std::vector<SlotState>> states;  // [L][S]
};

bool is_same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// The formulas once more, lane by lane on the host.
LaneReadings by_hand(const RandomEpoch& epoch, int64_t lane, double batches, Telemetry telemetry) {
  const auto sum = [&](int64_t row) { return epoch.trained[row][lane].item<double>(); };
  const auto score = [&](int64_t pass, int64_t which) {
    return epoch.validated[pass][which][lane].item<double>() /
           std::max(epoch.validated[pass][2][lane].item<double>(), 1.0);
  };
  const double samples = std::max(sum(StepMetrics::kValid), 1.0);
  LaneReadings read{.trained = {.loss = sum(StepMetrics::kLoss) / samples,
                                .accuracy = sum(StepMetrics::kCorrect) / samples,
                                .gradient_norm = sum(StepMetrics::kNorm) / batches,
                                .largest_norm = sum(StepMetrics::kLargestNorm),
                                .non_finite = static_cast<int64_t>(sum(StepMetrics::kNonFinite)),
                                .skipped = static_cast<int64_t>(sum(StepMetrics::kSkipped)),
                                .loss_scale = sum(StepMetrics::kScale)},
                    .validated = {.loss = score(0, 0), .accuracy = score(0, 1)}};
  const bool is_lost = read.trained.non_finite > 0 || !std::isfinite(read.validated.loss);
  read.verdict = is_lost ? Verdict::kNotFinite : Verdict::kSound;
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    const SlotState& state = epoch.states[static_cast<size_t>(lane)][static_cast<size_t>(slot)];
    LaneReadings::Slot of{.gradient_norm = kNaN, .contribution_points = kNaN, .is_finite = true};
    if (holds_seed(state.stage) && state.stage != SeedStage::kGerminated) {
      const bool is_gated = state.stage == SeedStage::kTraining || state.stage == SeedStage::kHolding;
      const double norm =
          telemetry == Telemetry::kAll || is_gated ? sum(StepMetrics::kFirstSlot + slot) / batches : 0;
      of.is_finite = !is_lost && std::isfinite(norm);
      if (norm != 0) of.gradient_norm = norm;
    }
    // A fossilised seed is not measured, whoever else has a pass without that slot.
    if (slot != 1 && holds_seed(state.stage) && state.stage != SeedStage::kFossilized && state.amplitude > 0)
      of.contribution_points = 100 * (read.validated.accuracy - score(1 + slot, 1));
    read.slots.push_back(of);
  }
  return read;
}

TEST(EpochReading, GivesTheHostEveryBitOfWhatItMeasured) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomEpoch epoch(seed);
    EpochBuffer buffer({{0, 1, 2, 3, 4, 5, 6}}, kSlots, at::kCPU);
    for (int64_t lane = 0; lane < kLanes; ++lane)
      buffer.set_lane(lane, {.states = epoch.states[static_cast<size_t>(lane)],
                             .added_parameters = 0.125 * static_cast<double>(lane),
                             .num_batches = 3 + lane});
    buffer.upload();
    buffer.collect(0, epoch.trained, epoch.validated);
    for (const Telemetry telemetry : {Telemetry::kAll, Telemetry::kForGates}) {
      EpochReading reading({.parameter_budget = 2}, {.lanes = kLanes, .slots = kSlots, .episode_length = 5});
      const EpochReadings read = reading.read(buffer.sums(telemetry), 0);
      buffer.read(reading.rows(), at::arange(2 * kLanes, at::kDouble).view({2, kLanes}));
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        SCOPED_TRACE("lane " + std::to_string(lane));
        const std::vector<double> column = buffer.column_of(lane);
        EXPECT_EQ(column.back(), static_cast<double>(kLanes + lane)) << "what the controller added";
        const LaneReadings got =
            reading.decode(std::span(column).first(static_cast<size_t>(reading.rows().size(0))));
        const LaneReadings want = by_hand(epoch, lane, static_cast<double>(3 + lane), telemetry);
        EXPECT_EQ(got.trained.loss, want.trained.loss);
        EXPECT_EQ(got.trained.accuracy, want.trained.accuracy);
        EXPECT_EQ(got.trained.gradient_norm, want.trained.gradient_norm);
        EXPECT_EQ(got.trained.largest_norm, want.trained.largest_norm);
        EXPECT_EQ(got.trained.non_finite, want.trained.non_finite);
        EXPECT_EQ(got.trained.skipped, want.trained.skipped);
        EXPECT_EQ(got.trained.loss_scale, want.trained.loss_scale);
        EXPECT_TRUE(is_same(got.validated.loss, want.validated.loss));
        EXPECT_EQ(got.validated.accuracy, want.validated.accuracy);
        EXPECT_EQ(got.verdict, want.verdict);
        const auto seen = [&](LaneReading which) {
          return read.observed.lanes[lane][static_cast<int64_t>(which)].item<float>();
        };
        EXPECT_EQ(seen(LaneReading::kTrainLoss), static_cast<float>(want.trained.loss));
        EXPECT_EQ(seen(LaneReading::kValidationAccuracy), static_cast<float>(want.validated.accuracy));
        EXPECT_EQ(seen(LaneReading::kGradientNorm), static_cast<float>(want.trained.gradient_norm));
        EXPECT_EQ(seen(LaneReading::kAddedParameters), 0.125f * static_cast<float>(lane));
        EXPECT_EQ(seen(LaneReading::kBudgetUsed), 0.0625f * static_cast<float>(lane));
        for (int64_t slot = 0; slot < kSlots; ++slot) {
          const LaneReadings::Slot &a = got.slots[static_cast<size_t>(slot)],
                                   &b = want.slots[static_cast<size_t>(slot)];
          EXPECT_TRUE(is_same(a.gradient_norm, b.gradient_norm)) << slot;
          EXPECT_TRUE(is_same(a.contribution_points, b.contribution_points)) << slot;
          EXPECT_EQ(a.is_finite, b.is_finite) << slot;
          const at::Tensor shown = read.observed.slots[lane][slot];
          EXPECT_TRUE(is_same(shown[0].item<float>(), static_cast<float>(b.gradient_norm))) << slot;
          EXPECT_TRUE(is_same(shown[1].item<float>(), static_cast<float>(b.contribution_points))) << slot;
        }
      }
    }
  }
}

// What an episode was worth, from the reports alone and on the host, step by step.
class HostReturns {
 public:
  HostReturns(const PopulationTrainer& environments, const std::string& rule)
      : lanes_(environments.num_lanes()),
        slots_(environments.num_slots()),
        host_(static_cast<double>(environments.host_parameters())),
        last_(environments.episode_length()),
        reward_(rule, {.lanes = lanes_, .slots = slots_}),
        before_(told()),
        contributions_(at::full({lanes_, slots_}, kNaN, at::kFloat)),
        op_(at::zeros({lanes_}, at::kLong)),
        lost_(at::zeros({lanes_}, at::kBool)),
        frozen_(at::zeros({lanes_}, at::kBool)) {}

  // [L,K]: terms of the decision before the epoch.
  at::Tensor add(const EpochRecord& epoch) {
    const policy::RawObservation after = told();
    for (const LaneRecord& lane : epoch.lanes) {
      after.lanes[lane.lane][static_cast<int64_t>(LaneReading::kValidationAccuracy)] =
          lane.validated.accuracy;
      after.lanes[lane.lane][static_cast<int64_t>(LaneReading::kAddedParameters)] =
          static_cast<double>(lane.num_parameters) / host_ - 1;
      if (lane.outcome != LaneOutcome::kTrained) lost_[lane.lane] = true;
      for (int64_t slot = 0; slot < slots_; ++slot) {
        const SlotReport& report = lane.slots[static_cast<size_t>(slot)];
        std::memcpy(after.states[lane.lane][slot].mutable_data_ptr<uint8_t>(), &report.state,
                    sizeof(SlotState));
        after.slots[lane.lane][slot][static_cast<int64_t>(SlotReading::kContributionPoints)] =
            report.measured.contribution_points.value_or(kNaN);
        if (!holds_seed(report.state.stage)) contributions_[lane.lane][slot] = kNaN;
      }
    }
    if (epoch.epoch > 1)
      reward_.compute(
          {.accuracy_before = before_.lanes.select(1, static_cast<int64_t>(LaneReading::kValidationAccuracy)),
           .states_before = before_.states,
           .after = after,
           .contributions = contributions_,
           .op = op_,
           .is_last = at::full({1}, epoch.epoch == last_, at::kBool),
           .failed = lost_,
           .frozen = frozen_});
    if (epoch.epoch > 1) frozen_.copy_(lost_);
    for (const LaneRecord& lane : epoch.lanes) {
      op_[lane.lane] = static_cast<int64_t>(lane.action.op);
      for (int64_t slot = 0; slot < slots_; ++slot)
        if (const auto& points = lane.slots[static_cast<size_t>(slot)].measured.contribution_points)
          contributions_[lane.lane][slot] = *points;
    }
    before_ = after;
    return reward_.terms();
  }

 private:
  policy::RawObservation told() const {
    return policy::empty_raw_observation({.lanes = lanes_, .space = {.num_slots = slots_}});
  }

  int64_t lanes_, slots_;
  double host_;
  int64_t last_;
  policy::Reward reward_;
  policy::RawObservation before_;
  at::Tensor contributions_, op_, lost_, frozen_;
};

TEST(EpochReading, RewardsEveryControllerByWhatIsReportedOfIt) {
  for (const char* controller : {"heuristic", "random", "ppo"})
    for (const char* rule : {"shaped", "sparse", "contribution", "escrow"}) {
      SCOPED_TRACE(std::string(controller) + ", " + rule);
      PpoConfig options = small_ppo(3);
      options.population.epochs = 24;
      options.controller = controller;
      options.reward.rule = rule;
      PpoTrainer trainer(options, small_shards(options));
      HostReturns host(trainer.environments(), rule);
      std::vector<double> returns(3);
      bool has_acted = false;
      const RoundRecord round = trainer.train_round({}, [&](int64_t, const EpochRecord& epoch) {
        const at::Tensor want = host.add(epoch);
        for (const LaneRecord& lane : epoch.lanes) {
          has_acted |= lane.action.op != SeedOp::kWait;
          for (size_t term = 0; term < lane.reward.terms.size(); ++term) {
            EXPECT_EQ(lane.reward.terms[term],
                      static_cast<double>(want[lane.lane][static_cast<int64_t>(term)].item<float>()))
                << "epoch " << epoch.epoch << ", term " << term;
            returns[static_cast<size_t>(lane.lane)] += lane.reward.terms[term];
          }
        }
        if (epoch.epoch == 10) testing::poison(trainer.environments().shard(0), 2);
      });
      EXPECT_TRUE(has_acted);
      EXPECT_EQ(round.episode.returns, returns);
      EXPECT_EQ(round.episode.lengths, (std::vector<int64_t>{23, 23, 10}));
    }
}

// In the first episode and in one that follows another.
TEST(EpochReading, PaysNothingForTheFirstAccuracyOfALaneWhoseFirstEpochWasLost) {
  const PpoConfig options = small_ppo(2);
  PopulationTrainer trainer(
      options.population, small_shards(options), at::kCPU, OnFailure::kRollBack,
      {.reward = {.weights = {.accuracy = 1, .rent = 0, .op = 0, .potential = 0, .end_accuracy = 0}}});
  testing::ScriptedController controller;
  double first_ones = 0;
  for (int64_t round = 0; round < 2; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    trainer.begin_episode(round);
    testing::poison(trainer.shard(0), 1);
    std::vector<EpochRecord> epochs;
    while (trainer.epochs_done() < trainer.episode_length())
      epochs.push_back(trainer.train_epoch(controller));
    EXPECT_EQ(epochs[0].lanes[1].outcome, LaneOutcome::kRolledBack);
    for (size_t epoch = 1; epoch < epochs.size(); ++epoch)
      for (const size_t lane : {0, 1}) {
        ASSERT_EQ(epochs[epoch].lanes[lane].outcome, LaneOutcome::kTrained);
        const double now = epochs[epoch].lanes[lane].validated.accuracy,
                     before = epochs[epoch - 1].lanes[lane].validated.accuracy;
        const bool is_first = lane == 1 && epoch == 1;
        EXPECT_NEAR(epochs[epoch].lanes[lane].reward.terms[0], is_first ? 0 : 100 * (now - before), 1e-4)
            << "epoch " << epoch + 1 << ", lane " << lane;
        if (is_first) first_ones += now;
      }
  }
  EXPECT_GT(first_ones, 0) << "nothing could be gained: nothing was tested";
}

// Pays an op, and nothing else.
class OpsAlone final : public policy::RewardRule {
 public:
  std::vector<std::string> terms() const override { return {"ops"}; }
  void compute(const policy::RewardInput& input, const at::Tensor& terms) override {
    terms.select(1, 0).copy_(input.op.ne(0));
  }
};

TEST(EpochReading, RewardsByARuleOfAProgramsOwn) {
  policy::rewards().add(
      {.name = "ops alone", .make = [](const policy::RewardFrame&) { return std::make_unique<OpsAlone>(); }});
  PpoConfig options = small_ppo(3);
  options.population.epochs = 8;
  options.reward.rule = "ops alone";
  for (const char* controller : {"random", "ppo"}) {
    SCOPED_TRACE(controller);
    options.controller = controller;
    PpoTrainer trainer(options, small_shards(options));
    std::vector<double> want(3);
    const RoundRecord round = trainer.train_round({}, [&](int64_t, const EpochRecord& epoch) {
      for (const LaneRecord& lane : epoch.lanes)
        if (epoch.epoch < 8) want[static_cast<size_t>(lane.lane)] += lane.action.op != SeedOp::kWait;
    });
    EXPECT_EQ(round.episode.returns, want);
    EXPECT_GT(want[0] + want[1] + want[2], 0);
    EXPECT_EQ(trainer.environments().reward_terms(), std::vector<std::string>{"ops"});
    if (trainer.policy() != nullptr) {
      EXPECT_EQ(trainer.policy()->acting().rollout().rewards.sum().item<double>(),
                want[0] + want[1] + want[2]);
    }
  }
}

}  // namespace
}  // namespace espalier::train
