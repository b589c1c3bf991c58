#include "espalier/linet/blanking.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::linet {
namespace {

at::Tensor scalar(double value, at::Device device = at::kCPU) {
  return at::full({1}, value, at::TensorOptions(at::kDouble).device(device));
}

// keep [S,B] bool. As the function it is of, with the rules first.
at::Tensor original(int64_t streams, int64_t batch, uint64_t seed, double step, double probability) {
  return blanking_mask({.rules = LinetRules::kOriginal, .streams = streams, .batch = batch}, seed,
                       scalar(step), scalar(probability));
}

at::Tensor espalier(int64_t streams, int64_t batch, uint64_t seed, double step, double probability) {
  return blanking_mask({.rules = LinetRules::kEspalier, .streams = streams, .batch = batch}, seed,
                       scalar(step), scalar(probability));
}

// "110": which samples of a stream are there.
std::string bits(const at::Tensor& keep) {
  std::string text;
  for (int64_t sample = 0; sample < keep.size(0); ++sample) text += keep[sample].item<bool>() ? '1' : '0';
  return text;
}

TEST(BlankingOriginal, TakesAtMostOneStreamOfASampleWithTheProbabilityGiven) {
  constexpr int64_t kSamples = 40000;
  for (const int64_t streams : {2, 3, 5})
    for (const double p : {0.0, 0.05, 0.3, 0.9, 1.0}) {
      const at::Tensor lost = original(streams, kSamples, 11, 2, p).logical_not();
      const at::Tensor lost_by_sample = lost.sum(0);
      EXPECT_LE(lost_by_sample.max().item<int64_t>(), 1) << streams << " streams at " << p;
      // Four standard deviations of a share of so many draws.
      const auto margin = [&](double share) { return 4 * std::sqrt(share * (1 - share) / kSamples); };
      EXPECT_NEAR(lost_by_sample.to(at::kDouble).mean().item<double>(), p, margin(p)) << streams;
      const double each = p / static_cast<double>(streams);
      for (int64_t stream = 0; stream < streams; ++stream)
        EXPECT_NEAR(lost[stream].to(at::kDouble).mean().item<double>(), each, margin(each))
            << "stream " << stream << " of " << streams << " at " << p;
    }
}

TEST(BlankingOriginal, DrawsASampleByItsPlaceAloneAndANewEveryStep) {
  EXPECT_TRUE(at::equal(original(3, 1000, 5, 9, 0.4).narrow(1, 0, 37), original(3, 37, 5, 9, 0.4)));
  EXPECT_TRUE(at::equal(original(3, 500, 5, 9, 0.4), original(3, 500, 5, 9, 0.4)));
  EXPECT_FALSE(at::equal(original(3, 500, 5, 9, 0.4), original(3, 500, 5, 10, 0.4)));
  EXPECT_FALSE(at::equal(original(3, 500, 5, 9, 0.4), original(3, 500, 6, 9, 0.4)));
  // Whoever loses a stream at a probability loses the same one at a higher one.
  const at::Tensor seldom = original(3, 500, 5, 9, 0.2), often = original(3, 500, 5, 9, 0.4);
  EXPECT_TRUE(seldom.logical_or(often.logical_not()).all().item<bool>());
  EXPECT_FALSE(at::equal(seldom, often));
}

// A sample whose only stream is blanked would have nothing left.
TEST(BlankingOriginal, WantsTwoStreams) {
  EXPECT_ERROR(original(1, 8, 5, 9, 0.4), c10::Error, "streams", "at least 2", "got 1");
}

// By hand: nothing in the epochs before the start, then so many of `ramp` parts, then all.
TEST(BlankingOriginal, RampsUpFromEpochToEpochAfterTheStart) {
  const auto at_step = [](const BlankingRamp& ramp, double step) {
    return ramp.at(scalar(step), LinetRules::kOriginal).item<double>();
  };
  const BlankingRamp ramp{.largest = 0.4, .start_epoch = 2, .ramp_epochs = 4, .steps_per_epoch = 10};
  const double by_epoch[] = {0, 0, 0.1, 0.2, 0.4 * 0.75, 0.4, 0.4};
  for (int epoch = 0; epoch < 7; ++epoch)
    for (const int step : {0, 1, 9})
      EXPECT_EQ(at_step(ramp, 10 * epoch + step), by_epoch[epoch]) << "epoch " << epoch << ", step " << step;
  EXPECT_EQ(at_step(ramp, 1e9), 0.4);
  // 2 %, 4 %, ..., 20 % in the tenth epoch.
  const BlankingRamp from_first{.largest = 0.2, .ramp_epochs = 10, .steps_per_epoch = 3};
  for (int epoch = 0; epoch < 12; ++epoch)
    EXPECT_DOUBLE_EQ(at_step(from_first, 3 * epoch), 0.02 * std::min(epoch + 1, 10)) << epoch;
  for (const double none : {0.0, 1.0}) {
    const BlankingRamp at_once{.largest = 0.4, .start_epoch = 1, .ramp_epochs = none, .steps_per_epoch = 7};
    EXPECT_EQ(at_step(at_once, 6), 0);
    EXPECT_EQ(at_step(at_once, 7), 0.4);
  }
  // Not a whole number of epochs: never more than the largest.
  const BlankingRamp broken{.largest = 0.4, .ramp_epochs = 2.5, .steps_per_epoch = 1};
  EXPECT_DOUBLE_EQ(at_step(broken, 1), 0.4 * 2 / 2.5);
  EXPECT_EQ(at_step(broken, 2), 0.4);
}

// As commit 4d20d15 drew them, before there were other rules.
TEST(Blanking, DrawsTheBitsItAlwaysDrew) {
  const at::Tensor half = espalier(3, 24, 3, 7, 0.5), third = espalier(3, 24, 3, 7, 0.3),
                   most = espalier(2, 24, 12345678901, 1000, 0.9);
  EXPECT_EQ(bits(half[0]), "100010010010000001100110");
  EXPECT_EQ(bits(half[1]), "011111001001110000011100");
  EXPECT_EQ(bits(half[2]), "111001110100011111011111");
  EXPECT_EQ(bits(third[0]), "110111010010111101111111");
  EXPECT_EQ(bits(third[1]), "011111100100111110011110");
  EXPECT_EQ(bits(third[2]), "111011111101111111011111");
  EXPECT_EQ(bits(most[0]), "100000101101101010001001");
  EXPECT_EQ(bits(most[1]), "011111010010010101110110");
}

TEST(Blanking, NeverTakesAllStreamsOfASample) {
  for (const int64_t streams : {1, 2, 3, 5})
    for (const double probability : {0.5, 0.9, 1.0}) {
      const at::Tensor keep = espalier(streams, 2000, 3, 7, probability);
      EXPECT_TRUE(keep.any(0).all().item<bool>()) << streams << " streams at " << probability;
    }
  EXPECT_TRUE(espalier(1, 100, 3, 7, 1).all().item<bool>());
  EXPECT_TRUE(espalier(3, 100, 3, 7, 0).all().item<bool>());
}

// A stream is left out where it falls, and not all three do, or all do and another one is drawn to stay.
TEST(Blanking, TakesEveryStreamAsOftenAsItShould) {
  const double p = 0.3, expected = p - p * p * p / 3;
  const at::Tensor kept = espalier(3, 40000, 11, 2, p).to(at::kDouble).mean(1);
  for (int64_t stream = 0; stream < 3; ++stream)
    EXPECT_NEAR(1 - kept[stream].item<double>(), expected, 0.01) << stream;
}

TEST(Blanking, DrawsAnewEveryStepAndAlikeForOneSeed) {
  const auto mask = [](uint64_t seed, double step) { return espalier(3, 64, seed, step, 0.5); };
  EXPECT_TRUE(at::equal(mask(1, 5), mask(1, 5)));
  EXPECT_FALSE(at::equal(mask(1, 5), mask(1, 6)));
  EXPECT_FALSE(at::equal(mask(1, 5), mask(2, 5)));
}

TEST(Blanking, RampsUpInALine) {
  const auto at_step = [](const BlankingRamp& ramp, double step) {
    return ramp.at(scalar(step), LinetRules::kEspalier).item<double>();
  };
  const BlankingRamp ramp{.largest = 0.4, .ramp_epochs = 2.5, .steps_per_epoch = 4};
  EXPECT_EQ(at_step(ramp, 0), 0);
  EXPECT_NEAR(at_step(ramp, 5), 0.2, 1e-12);
  EXPECT_EQ(at_step(ramp, 10), 0.4);
  EXPECT_EQ(at_step(ramp, 1000), 0.4);
  const BlankingRamp constant{.largest = 0.4};
  EXPECT_EQ(at_step(constant, 0), 0.4);
}

TEST(Dropout, KeepsTheMeanAndDrawsAnew) {
  const at::Tensor factors = dropout_factors(100, 200, 0.25, 1, scalar(3));
  EXPECT_NEAR(factors.mean().item<double>(), 1, 0.02);
  const at::Tensor kept = factors.masked_select(factors > 0);
  EXPECT_TRUE((kept == static_cast<float>(1 / 0.75)).all().item<bool>());
  EXPECT_FALSE(at::equal(factors, dropout_factors(100, 200, 0.25, 1, scalar(4))));
  EXPECT_TRUE((dropout_factors(3, 4, 0, 1, scalar(4)) == 1).all().item<bool>());
  EXPECT_ERROR(dropout_factors(3, 4, 1, 1, scalar(4)), c10::Error, "probability", "below 1");
}

TEST(BlankingCuda, DrawsWhatTheCpuDraws) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const int64_t batch : {0, 1, 31, 32, 33, 257}) {
    for (const LinetRules rules : {LinetRules::kOriginal, LinetRules::kEspalier}) {
      const BlankingShape shape{.rules = rules, .streams = 3, .batch = batch};
      EXPECT_TRUE(at::equal(blanking_mask(shape, 9, scalar(4, at::kCUDA), scalar(0.6, at::kCUDA)).cpu(),
                            blanking_mask(shape, 9, scalar(4), scalar(0.6))))
          << batch;
    }
    EXPECT_TRUE(at::equal(dropout_factors(batch, 7, 0.5, 9, scalar(4, at::kCUDA)).cpu(),
                          dropout_factors(batch, 7, 0.5, 9, scalar(4))));
  }
}

TEST(BlankingCuda, RampsAsTheCpuDoes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const BlankingRamp ramp{.largest = 0.3, .ramp_epochs = 7, .steps_per_epoch = 13};
  for (const LinetRules rules : {LinetRules::kOriginal, LinetRules::kEspalier})
    for (double step = 0; step < 120; ++step)
      ASSERT_EQ(ramp.at(scalar(step, at::kCUDA), rules).item<double>(),
                ramp.at(scalar(step), rules).item<double>())
          << step;
}

}  // namespace
}  // namespace espalier::linet
