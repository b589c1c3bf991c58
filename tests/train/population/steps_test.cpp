// What moves with every batch, whatever a step is: the walk over the data, the rate, amplitudes, a seed's
// age.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "espalier/grow/blend/ramp.h"
#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

using testing::copy_of_lane;
using testing::expect_same_lane;
using testing::germinate;
using testing::kConvLight;
using testing::ScriptedController;
using testing::small_options;
using testing::small_setup;

constexpr int64_t kBatchesPerPass = 4;  // as small_setup() has them

std::map<std::string, at::Tensor> weights_after(PopulationConfig options, int64_t batches_per_step,
                                                int64_t steps) {
  options.batches_per_step = batches_per_step;
  options.epochs = steps;
  testing::OneShard trainer(options, small_setup(options));
  EXPECT_EQ(trainer.shard().batches_per_pass(), kBatchesPerPass);
  for (int64_t step = 0; step < steps; ++step) trainer.train_epoch();
  return copy_of_lane(trainer, 1);
}

TEST(Steps, OfThreeOrSevenBatchesGiveTheSameWeights) {
  for (const auto& [schedule, plan] : {std::pair{RateCurve::kLinear, data::PlanKind::kOwn},
                                       {RateCurve::kCosine, data::PlanKind::kOwn},
                                       {RateCurve::kConstant, data::PlanKind::kOwn},
                                       {RateCurve::kStep, data::PlanKind::kOwn},
                                       {RateCurve::kLinear, data::PlanKind::kSplit}}) {
    PopulationConfig options = small_options(2);
    options.schedule = schedule;
    options.plan = plan;
    if (plan == data::PlanKind::kSplit) options.batch /= 2;  // each of the two has half of a pass
    const auto threes = weights_after(options, 3, 7);
    expect_same_lane(threes, weights_after(options, 7, 3), "7 batches a step");
    expect_same_lane(threes, weights_after(options, 21, 1), "one step");
    EXPECT_FALSE(at::equal(threes.at("host.classifier.weight"),
                           weights_after(options, 3, 6).at("host.classifier.weight")));
  }
}

// Every lane begins with a seed that takes part, so nothing but the batches that were done may tell.
TEST(Steps, OfThreeOrSevenBatchesGiveTheSameSeedsWhateverTheirSchedule) {
  const auto grown_after = [](std::optional<RateCurve> seed_schedule, int64_t batches_per_step,
                              int64_t steps) {
    PopulationConfig options = small_options(2);
    options.seed_schedule = seed_schedule;
    options.seed_warm_up = 4;
    options.batches_per_step = batches_per_step;
    options.epochs = steps;
    testing::OneShard trainer(options, small_setup(options));
    std::vector<SlotState> slots(static_cast<size_t>(trainer.population().num_slots()));
    slots[1] = {.stage = SeedStage::kFossilized,
                .blueprint = kConvLight,
                .amplitude = 1,
                .target = 1,
                .num_seeds = 1};
    trainer.shard().begin_with({slots, slots});
    for (int64_t step = 0; step < steps; ++step) trainer.train_epoch();
    return copy_of_lane(trainer, 1);
  };
  const auto host = grown_after({}, 3, 7);
  const std::string weight = "r0c1.conv_light.norm.weight";
  for (const RateCurve curve :
       {RateCurve::kLinear, RateCurve::kCosine, RateCurve::kConstant, RateCurve::kStep}) {
    const auto threes = grown_after(curve, 3, 7);
    expect_same_lane(threes, grown_after(curve, 7, 3), "7 batches a step");
    expect_same_lane(threes, grown_after(curve, 21, 1), "one step");
    EXPECT_FALSE(at::equal(threes.at(weight), host.at(weight))) << "as with the host's schedule";
  }
}

TEST(Steps, AsLongAsAPassAreWhatEpochsAre) {
  const PopulationConfig options = small_options(2);
  expect_same_lane(weights_after(options, kBatchesPerPass, 3), weights_after(options, 0, 3), "three passes");
}

TEST(Steps, GoOnWithTheWalkWhereEpisodesBegin) {
  PopulationConfig options = small_options(2);
  options.batches_per_step = 3;
  options.epochs = 3;  // nine batches: two passes and a part of a third
  PopulationTrainer trainer(options, {small_setup(options)}, at::kCPU, OnFailure::kRetire);
  const auto controller = controller_for(options, trainer.population(0).blueprints());
  const at::Tensor& position = trainer.shard(0).step().batch().position();
  for (const int64_t round : {0, 1}) {
    trainer.begin_episode(round);
    std::vector<std::vector<int64_t>> seen;
    trainer.at_every_batch(
        [&] { seen.push_back({position[0].item<int64_t>(), position[1].item<int64_t>()}); });
    while (trainer.epochs_done() < options.epochs) trainer.train_epoch(*controller);
    ASSERT_EQ(seen.size(), 9u);
    for (int64_t batch = 0; batch < 9; ++batch)  // after a batch: the place of the next
      EXPECT_EQ(
          seen[static_cast<size_t>(batch)],
          (std::vector<int64_t>{3 * round + (batch + 1) / kBatchesPerPass, (batch + 1) % kBatchesPerPass}));
  }
}

TEST(Steps, MoveAnAmplitudeWithEveryBatchAndEndWhereTheLifecycleSays) {
  for (const int64_t batches : {0, 3}) {
    PopulationConfig options = small_options(2);
    options.batches_per_step = batches;
    const auto controller = std::make_shared<ScriptedController>();
    controller->script[{1, 1}] = germinate(0, kConvLight, /*steps=*/3);
    controller->script[{1, 1}].curve = BlendCurve::kSigmoid6;
    controller->script[{1, 4}] = {.op = SeedOp::kAdvance, .slot = 0};
    testing::OneShard trainer(options, small_setup(options, controller));
    const int64_t in_step = trainer.batches_per_epoch();
    std::vector<float> seen;
    trainer.at_every_batch([&] { seen.push_back(trainer.population().amplitudes()[0][1].item<float>()); });
    for (int step = 1; step <= 8; ++step) {
      trainer.train_epoch();
      EXPECT_EQ(seen.back(), trainer.lifecycle().at(1, 0).amplitude) << "what validation sees, step " << step;
    }
    ASSERT_EQ(seen.size(), static_cast<size_t>(8 * in_step));
    for (int64_t batch = 0; batch < 8 * in_step; ++batch) {
      const double done =
          static_cast<double>(batch + 1) / static_cast<double>(in_step) - 4;  // in three steps
      EXPECT_NEAR(seen[static_cast<size_t>(batch)], grow::curve_fraction(BlendCurve::kSigmoid6, done, 3),
                  1e-6)
          << "batch " << batch;
    }
    EXPECT_EQ(trainer.population().amplitudes()[0][0].item<float>(), 0) << "the other lane's";
  }
}

TEST(Steps, WarmASeedUpByItsOwnAgeInBatches) {
  PopulationConfig options = small_options(2);
  options.batches_per_step = 3;
  const auto controller = std::make_shared<ScriptedController>();
  controller->script[{1, 1}] = germinate(0, kConvLight);
  controller->script[{1, 3}] = {.op = SeedOp::kPrune, .slot = 0};
  testing::OneShard trainer(options, small_setup(options, controller));
  const auto age = [&] {
    for (const auto& [name, value] : copy_of_lane(trainer, 1))
      if (name.starts_with("optimizer.r0c0.conv_light.") && value.dim() == 0) return value.item<double>();
    return -1.0;
  };
  std::vector<double> ages;
  for (int step = 1; step <= 4; ++step) {
    trainer.train_epoch();
    ages.push_back(age());
  }
  EXPECT_EQ(ages, (std::vector<double>{-1, 3, 6, -1}));
}

// The first batch of a seed, at a tenth of the warm-up, moves it a tenth as far.
TEST(Steps, TrainASeedAtItsOwnRate) {
  const auto moved = [](double seed_rate, int64_t warm_up) {
    PopulationConfig options = small_options(1);
    options.batches_per_step = 1;
    options.weight_decay = 0;
    options.seed_rate = seed_rate;
    options.seed_warm_up = warm_up;
    const auto controller = std::make_shared<ScriptedController>();
    controller->script[{0, 1}] = germinate(0, kConvLight);
    testing::OneShard trainer(options, small_setup(options, controller));
    for (int step = 1; step <= 2; ++step) trainer.train_epoch();
    return copy_of_lane(trainer, 0);
  };
  const auto plain = moved(1, 0), faster = moved(2, 0), warmed = moved(1, 5), still = moved(0, 0);
  const std::string scale = "r0c0.conv_light.norm.weight";  // 0 at birth
  EXPECT_GT(plain.at(scale).abs().max().item<double>(), 0);
  EXPECT_TRUE(at::allclose(faster.at(scale), 2 * plain.at(scale)));
  EXPECT_TRUE(at::allclose(warmed.at(scale), 0.1 * plain.at(scale)));
  EXPECT_EQ(still.at(scale).abs().max().item<double>(), 0);
  for (const auto* other : {&faster, &warmed, &still})
    lanes::testing::expect_same_bits(other->at("host.classifier.weight"), plain.at("host.classifier.weight"),
                                     "the host's");
}

// The rates of the host and of a seed that is planted three batches before the end of a run of eight, with a
// warm-up of one batch, as shares of the peak: batch by batch.
std::vector<std::pair<double, double>> late_rates(std::optional<RateCurve> seed_schedule,
                                                  RateCurve schedule = RateCurve::kLinear) {
  PopulationConfig options = small_options(2);
  options.batches_per_step = 1;
  options.momentum = 0;
  options.weight_decay = 0;
  options.clip = 0;
  options.schedule = schedule;
  options.warm_up = 0;
  options.seed_warm_up = 1;
  options.seed_schedule = seed_schedule;
  const auto controller = std::make_shared<ScriptedController>();
  controller->script[{1, 5}] = germinate(0, kConvLight);  // GERMINATED in step 5, TRAINING from the sixth on
  testing::OneShard trainer(options, small_setup(options, controller));
  std::vector<std::pair<double, double>> rates;
  for (int step = 1; step <= 8; ++step) {
    std::map<std::string, at::Tensor> before = copy_of_lane(trainer, 1);
    trainer.train_epoch();
    // Plain SGD: what moved, by the gradient that moved it.
    const auto rate_of = [&](const OptimizedGroup& group, size_t entry) {
      for (const lanes::NamedParameter& named : group.group.parameters) {
        const at::Tensor gradient = named.parameter->gradient()[static_cast<int64_t>(entry)];
        if (gradient.abs().max().item<double>() == 0) continue;
        const auto old = before.find(group.group.name + "." + named.name);
        const at::Tensor was = old != before.end() ? old->second : at::zeros_like(gradient);
        const at::Tensor moved = was - named.parameter->value().detach()[static_cast<int64_t>(entry)];
        return (moved * gradient).sum().item<double>() / gradient.square().sum().item<double>();
      }
      return 0.0;
    };
    if (step < 6) continue;
    const auto& groups = trainer.step().optimizers().groups();
    const auto& entries = groups.at(1).group.entry_lanes;
    const auto entry = std::ranges::find(entries, 1) - entries.begin();
    rates.push_back({rate_of(groups.at(0), 1) / options.learning_rate,
                     rate_of(groups.at(1), static_cast<size_t>(entry)) / options.learning_rate});
  }
  return rates;
}

TEST(Steps, TrainALateSeedFromThePeakWhereItHasAScheduleOfItsOwn) {
  using Rates = std::vector<double>;
  const auto expect_rates = [](std::optional<RateCurve> seed_schedule, const Rates& want) {
    const auto rates = late_rates(seed_schedule);
    ASSERT_EQ(rates.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(rates[i].first, (2.5 - static_cast<double>(i)) / 8, 1e-4) << "the host's, batch " << i;
      EXPECT_NEAR(rates[i].second, want[i], 1e-4) << "the seed's, batch " << i;
    }
  };
  expect_rates({}, {0.5 * 2.5 / 8, 1.5 / 8, 0.5 / 8});  // its host's
  expect_rates(RateCurve::kConstant, {0.5, 1, 1});
  expect_rates(RateCurve::kLinear, {0.5, 1.5 / 2, 0.5 / 2});
  expect_rates(RateCurve::kCosine, {0.5, 0.5 + 0.5 * std::cos(M_PI / 4), 0.5 - 0.5 * std::cos(M_PI / 4)});
  expect_rates(RateCurve::kStep, {0.5, 0.1, 0.01});  // batch 2 of 3 lies at its half
}

}  // namespace
}  // namespace espalier::train
