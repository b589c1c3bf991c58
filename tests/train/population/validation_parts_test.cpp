// Validation by parts of the split, in turn: parts are those of one whole, every class is in all of them, and
// training knows nothing of it.
#include <gtest/gtest.h>

#include "tests/support/message.h"
#include "tests/support/thread_ranks.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::train {
namespace {

using espalier::testing::as_ranks;
using testing::copy_of_lane;
using testing::expect_same_epoch;
using testing::expect_same_lane;
using testing::germinate;
using testing::kConvLight;
using testing::ScriptedController;
using testing::small_options;
using testing::small_ppo;
using testing::small_setup;
using testing::small_shards;

constexpr int64_t kValidation = 20;  // samples of small_data()

PopulationConfig in_parts(int64_t parts) {
  PopulationConfig options = small_options(2);
  options.epochs = 8;
  options.validation_parts = parts;
  return options;
}

at::Tensor scored(Shard& shard, SplitPart part) {
  shard.validation().pass({}, part);
  return shard.validation().sums().select(0, 0).clone();  // [3,L]
}

TEST(ValidationParts, AddUpToTheWholeSplitForAnyNumberOfThem) {
  for (const int64_t parts : {1, 2, 3, 7, 13, 20}) {
    SCOPED_TRACE(parts);
    PopulationConfig options = in_parts(parts);
    options.validation_batch = 4;
    testing::OneShard trainer(options, small_setup(options));
    trainer.train_epoch();
    const at::Tensor whole = scored(trainer, {});
    at::Tensor sum = torch::zeros_like(whole);
    for (int64_t index = 0; index < parts; ++index) {
      const at::Tensor part = scored(trainer, {.index = index, .of = parts});
      EXPECT_GE(part[2].min().item<double>(), static_cast<double>(kValidation / parts / 2 + (parts > 2)))
          << "of " << parts;
      sum += part;
    }
    EXPECT_TRUE(torch::equal(sum[1], whole[1])) << "hits";
    EXPECT_TRUE(torch::equal(sum[2], torch::full({2}, double{kValidation}, torch::kDouble))) << "samples";
    EXPECT_TRUE(torch::allclose(sum[0], whole[0], 1e-12)) << "losses";
  }
}

TEST(ValidationParts, AreScoredInTurnAndAllOfThemInTheEnd) {
  for (const int64_t every : {1, 2}) {
    SCOPED_TRACE(every);
    const auto felt = [] {
      auto controller = std::make_shared<ScriptedController>();
      controller->script[{1, 1}] = germinate(0, kConvLight, 1);
      controller->script[{1, 3}] = {.op = SeedOp::kAdvance, .slot = 0};
      controller->script[{1, 4}] = {.op = SeedOp::kAdvance, .slot = 0};
      return controller;
    };
    PopulationConfig options = in_parts(3), whole = in_parts(1);
    options.validate_every = whole.validate_every = every;
    options.validation_batch = whole.validation_batch = 2;
    testing::OneShard parts(options, small_setup(options, felt())), all(whole, small_setup(whole, felt()));
    std::vector<int64_t> counts;
    for (int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
      SCOPED_TRACE("epoch " + std::to_string(epoch));
      const int64_t index = (epoch - 1) / every % 3;
      const EpochRecord got = parts.train_epoch(), want = all.train_epoch();
      EXPECT_EQ(got.is_validated, want.is_validated);
      EXPECT_EQ(want.num_scored, want.is_validated ? kValidation : 0);
      for (const int64_t lane : {0, 1})
        expect_same_lane(copy_of_lane(parts, lane), copy_of_lane(all, lane), "a lane");
      if (!got.is_validated) {
        EXPECT_EQ(got.num_scored, 0);
        continue;
      }
      counts.push_back(got.num_scored);
      const bool is_last = epoch == options.epochs;
      const at::Tensor sums = scored(parts, is_last ? SplitPart{} : SplitPart{.index = index, .of = 3});
      EXPECT_EQ(sums[2][0].item<double>(), static_cast<double>(got.num_scored));
      for (size_t lane = 0; lane < 2; ++lane)
        EXPECT_EQ(got.lanes[lane].validated.accuracy,
                  sums[1][static_cast<int64_t>(lane)].item<double>() / static_cast<double>(got.num_scored));
      EXPECT_EQ(got.lanes[1].slots[0].measured.contribution_points.has_value(),
                want.lanes[1].slots[0].measured.contribution_points.has_value());
    }
    EXPECT_EQ(counts.back(), kValidation);
    if (every == 1) {
      EXPECT_EQ(counts, (std::vector<int64_t>{6, 6, 8, 6, 6, 8, 6, 20}));
    }
  }
}

// As files of folders are: one class after the other.
TEST(ValidationParts, HaveEveryClassThoughTheSplitIsSortedByClass) {
  const PopulationConfig options = in_parts(4);
  testing::SmallSetup setup = small_setup(options);
  auto sorted = std::make_shared<data::ResidentDataset>(*setup.dataset);
  sorted->validation.labels =
      torch::arange(kValidation).ge(kValidation / 2).to(sorted->validation.labels.dtype());
  setup.dataset = sorted;
  testing::OneShard trainer(options, setup);
  for (const lanes::NamedParameter& named : trainer.population().host().parameters())
    named.parameter->storage().zero_();  // so that all samples are taken for class 0
  trainer.population().refresh();
  for (int64_t index = 0; index < 4; ++index) {
    const at::Tensor part = scored(trainer, {.index = index, .of = 4});
    EXPECT_GT(part[1][0].item<double>(), 0) << "part " << index << " has none of the first class";
    EXPECT_LT(part[1][0].item<double>(), part[2][0].item<double>()) << "and of the second";
  }
}

TEST(ValidationParts, AreTheSameOnTwoDevicesAndOverRanks) {
  PpoConfig options = small_ppo(3);
  options.controller = "random";
  options.population.validation_parts = 3;
  options.population.validation_batch = 3;
  options.population.gates.min_training_steps = 1;
  const auto played = [&](PopulationTrainer& environments) {
    const auto controller = rule_controller(options.controller, options, environments.population(0));
    std::vector<EpochRecord> epochs;
    play_episode(environments, *controller, 0,
                 {.step_done = [&](int64_t, const EpochRecord& epoch) { epochs.push_back(epoch); }});
    return epochs;
  };
  const auto expect_same = [](const std::vector<EpochRecord>& got, const std::vector<EpochRecord>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t step = 0; step < got.size(); ++step) {
      EXPECT_EQ(got[step].num_scored, want[step].num_scored);
      expect_same_epoch(got[step], want[step], "step " + std::to_string(step + 1));
    }
  };
  PopulationTrainer one = testing::small_environments(options);
  const std::vector<EpochRecord> want = played(one);
  PpoConfig two = options;
  two.population.devices = {parse_device("cpu"), parse_device("cpu")};
  PopulationTrainer shared = testing::small_environments(two);
  expect_same(played(shared), want);
  as_ranks(2, [&](ranks::World& world) {
    PopulationTrainer own(options.population, small_shards(options), at::kCPU, OnFailure::kRetire, {}, world);
    const std::vector<EpochRecord> got = played(own);
    if (world.leads()) expect_same(got, want);
  });
}

TEST(ValidationParts, RefusesMoreOfThemThanSamples) {
  const PopulationConfig options = in_parts(kValidation + 1);
  EXPECT_ERROR(testing::OneShard(options, small_setup(options)), UsageError, "--validation-parts 21",
               "20 samples");
}

}  // namespace
}  // namespace espalier::train
