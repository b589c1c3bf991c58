// How many samples are scored at a time is a matter of speed alone. Scores are added up sample by sample
// (lanes/head/score.h): they have the same bits wherever a sample's logits have. torch's CPU gives a sample
// other roundings in another batch here and there: a convolution of 1x1 and 8 filters below 16 samples, any
// convolution or matrix product of one sample, matrix products of many outputs below 4, and what a gate makes
// of a batch's last samples (a product with one output, and a sigmoid).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <optional>

#include "espalier/lanes/conv/choice.h"
#include "tests/support/cuda.h"
#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

using testing::germinate;
using testing::ScriptedController;
using testing::small_options;
using testing::small_setup;

constexpr int64_t kLanes = 7, kEpochs = 7;

// Every blueprint but noop, one per lane, in all slots and with all operators; felt from epoch 5 on.
std::shared_ptr<ScriptedController> all_blueprints() {
  auto controller = std::make_shared<ScriptedController>();
  for (int32_t lane = 0; lane < kLanes; ++lane) {
    const int32_t slot = lane % 3;
    controller->script[{lane, 1}] =
        germinate(slot, lane + 1, 1, static_cast<BlendOperator>(lane % kNumBlendOperators));
    controller->script[{lane, 4}] = {.op = SeedOp::kAdvance, .slot = slot};
    controller->script[{lane, 5}] = {.op = SeedOp::kAdvance, .slot = slot};
  }
  return controller;
}

// A number with all its bits.
std::string bits(double value) {
  return fmt::format("{:a}", value);
}
std::string bits(const std::optional<double>& value) {
  return value ? bits(*value) : "none";
}

// All of a record that is no matter of time, one line per number. losses: those of validation, apart.
std::vector<std::string> lines_of(const EpochRecord& record, std::vector<double>& losses) {
  std::vector<std::string> lines;
  for (const LaneRecord& lane : record.lanes) {
    const auto add = [&](const std::string& what, const std::string& value) {
      lines.push_back(fmt::format("epoch {} lane {} {}: {}", record.epoch, lane.lane, what, value));
    };
    add("outcome", name_of(lane.outcome));
    add("verdict", name_of(lane.verdict));
    add("training loss", bits(lane.trained.loss));
    add("training accuracy", bits(lane.trained.accuracy));
    add("gradient norm", bits(lane.trained.gradient_norm));
    add("largest norm", bits(lane.trained.largest_norm));
    for (const double norm : lane.trained.slots) add("seed's norm", bits(norm));
    losses.push_back(lane.validated.loss);
    add("validation accuracy", bits(lane.validated.accuracy));
    add("parameters", std::to_string(lane.num_parameters));
    add("action", std::to_string(static_cast<int>(lane.action.op)));
    add("gate", lane.gate.summary());
    for (const SlotReport& slot : lane.slots) {
      add("stage", std::to_string(static_cast<int>(slot.state.stage)));
      add("amplitude", bits(slot.state.amplitude));
      add("norm", bits(slot.measured.gradient_norm));
      add("improvement", bits(slot.measured.improvement_points));
      add("contribution", bits(slot.measured.contribution_points));
    }
  }
  return lines;
}

enum class Growth { kNone, kAllBlueprints };

struct Case {
  Growth growth = Growth::kNone;
  Precision precision = Precision::kFp32;
  DeviceName device = parse_device("cpu");
};

struct Run {
  std::vector<std::string> lines;  // all but the losses of validation and test
  std::vector<double> losses;
  int64_t num_contributions = 0;
};

// 100 samples to validate on, and 67 to test on.
Run run_with(int64_t validation_batch, const Case& wanted) {
  PopulationConfig options = small_options(kLanes);
  options.devices = {wanted.device};
  options.epochs = kEpochs;
  options.validation_batch = validation_batch;
  options.precision = wanted.precision;
  testing::SmallSetup setup =
      small_setup(options, wanted.growth == Growth::kNone ? nullptr : all_blueprints());
  setup.dataset =
      data::testing::resident(data::testing::small_dataset({data::testing::image_spec(8, 8)}, 140, 67),
                              {.validation = 100}, torch_device(wanted.device));
  testing::OneShard trainer(options, setup);
  Run run;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const EpochRecord record = trainer.train_epoch();
    for (const std::string& line : lines_of(record, run.losses)) run.lines.push_back(line);
    for (const LaneRecord& lane : record.lanes)
      for (const SlotReport& slot : lane.slots)
        run.num_contributions += slot.measured.contribution_points.has_value();
  }
  for (const LaneScore& score : trainer.test()) {
    run.losses.push_back(score.loss);
    run.lines.push_back("accuracy on test: " + bits(score.accuracy));
  }
  EXPECT_EQ(run.num_contributions > kLanes, wanted.growth != Growth::kNone) << "else no seed was left out";
  return run;
}

// tolerance: of losses, relative; all else has the same bits, what was counted and what was learned included.
void expect_same_scores(const Case& wanted, std::initializer_list<int64_t> batches, double tolerance = 0) {
  const Run want = run_with(0, wanted);
  for (const int64_t batch : batches) {
    SCOPED_TRACE("batches of " + std::to_string(batch));
    const Run got = run_with(batch, wanted);
    EXPECT_EQ(got.lines, want.lines);
    ASSERT_EQ(got.losses.size(), want.losses.size());
    for (size_t i = 0; i < want.losses.size(); ++i)
      EXPECT_LE(std::abs(got.losses[i] - want.losses[i]), tolerance * want.losses[i])
          << "loss " << i << ": " << bits(got.losses[i]) << ", want " << bits(want.losses[i]);
  }
}

TEST(ValidationBatch, ChangesNoBitOfHostsScoresAndRecords) {
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16})
      expect_same_scores({.precision = precision}, {7, 64});
  }
  at::set_num_threads(1);
}

// A few roundings of logits in f32; see above.
TEST(ValidationBatch, ChangesScoresOfGrownNetworksByRoundingsAlone) {
  expect_same_scores({.growth = Growth::kAllBlueprints}, {1, 7, 64}, 0x1p-20);
}

// cuDNN and torch choose their way by the batch, so logits round otherwise; all that is counted is the same.
TEST(ValidationBatchCuda, ChangesScoresByRoundingsAlone) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  lanes::set_conv_choosing(lanes::ConvChoosing::kFixed);  // what is measured may choose by the batch
  for (const Precision precision : {Precision::kFp32, Precision::kBf16})
    expect_same_scores({Growth::kAllBlueprints, precision, parse_device("cuda:0")}, {1, 7, 64}, 0x1p-14);
  lanes::set_conv_choosing(lanes::ConvChoosing::kMeasure);
}

TEST(ValidationBatch, SharesASplitOutEvenly) {
  PopulationConfig options = small_options(4);
  const auto batch_of = [&](int64_t validation_batch, int64_t num_samples) {
    options.validation_batch = validation_batch;
    return evaluation_plan(options, options.devices.front(), at::kFloat, num_samples).plan.batch_size_per_env;
  };
  EXPECT_EQ(batch_of(0, 100), 50) << "two batches of at most 64 on the CPU";
  EXPECT_EQ(batch_of(64, 100), 50);
  EXPECT_EQ(batch_of(64, 128), 64);
  EXPECT_EQ(batch_of(64, 129), 43);
  EXPECT_EQ(batch_of(7, 100), 7);
  EXPECT_EQ(batch_of(1000, 100), 100);
  EXPECT_EQ(batch_of(64, 0), 1) << "of a split without samples there is no batch, but a size";
}

TEST(ValidationBatch, KeepsAGpuBusyWhereItIsNotTold) {
  PopulationConfig options = small_options(64);
  EXPECT_EQ(validation_batch(options, true), 256);
  EXPECT_EQ(validation_batch(options, false), kCpuValidationBatch);
  options.lanes = 1;
  EXPECT_EQ(validation_batch(options, true), 1024) << "but no more of one network";
  options.validation_batch = 33;
  for (const bool on_cuda : {false, true}) EXPECT_EQ(validation_batch(options, on_cuda), 33);
}

TEST(ValidationBatch, IsTheSameWhateverNetworksAreTrainedBy) {
  PopulationConfig options = small_options(64);
  for (const int64_t batch : {1, 10, 512, 4096}) {
    options.batch = batch;
    EXPECT_EQ(validation_batch(options, true), 256) << batch;
    EXPECT_EQ(validation_batch(options, false), kCpuValidationBatch) << batch;
  }
}

// Fresh networks, so that nothing but the batch differs: [L], validation and test.
TEST(ValidationBatch, GivesTheSameScoresWhateverNetworksAreTrainedBy) {
  std::vector<std::vector<LaneScore>> scores;
  for (const int64_t batch : {5, 33}) {
    PopulationConfig options = small_options(3);
    options.batch = batch;
    testing::SmallSetup setup = small_setup(options);
    setup.dataset = data::testing::resident(
        data::testing::small_dataset({data::testing::image_spec(8, 8)}, 240, 67), {.validation = 200});
    testing::OneShard trainer(options, setup);
    EXPECT_EQ(trainer.shard().validation_batch(), 50) << "four batches of at most 64";
    scores.push_back(trainer.validation().score());
    for (const LaneScore& tested : trainer.test()) scores.back().push_back(tested);
  }
  ASSERT_EQ(scores[0].size(), 6u);
  for (size_t i = 0; i < scores[0].size(); ++i) {
    EXPECT_EQ(bits(scores[0][i].loss), bits(scores[1][i].loss)) << i;
    EXPECT_EQ(bits(scores[0][i].accuracy), bits(scores[1][i].accuracy)) << i;
  }
}

TEST(ValidationBatch, IsThatOfTheShardWithTheMostNetworks) {
  const PopulationConfig options = small_options(33);
  EXPECT_EQ(validation_batch(options_of_part(options, 2), true), 964) << "17 networks at most";
}

}  // namespace
}  // namespace espalier::train
