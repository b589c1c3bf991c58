#include "espalier/linet/blanking.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::linet {
namespace {

at::Tensor scalar(double value, at::Device device = at::kCPU) {
  return at::full({1}, value, at::TensorOptions(at::kDouble).device(device));
}

TEST(Blanking, NeverTakesAllStreamsOfASample) {
  for (const int64_t streams : {1, 2, 3, 5})
    for (const double probability : {0.5, 0.9, 1.0}) {
      const at::Tensor keep = blanking_mask(streams, 2000, 3, scalar(7), scalar(probability));
      EXPECT_TRUE(keep.any(0).all().item<bool>()) << streams << " streams at " << probability;
    }
  EXPECT_TRUE(blanking_mask(1, 100, 3, scalar(7), scalar(1)).all().item<bool>());
  EXPECT_TRUE(blanking_mask(3, 100, 3, scalar(7), scalar(0)).all().item<bool>());
}

// A stream is left out where it falls, and not all three do, or all do and another one is drawn to stay.
TEST(Blanking, TakesEveryStreamAsOftenAsItShould) {
  const double p = 0.3, expected = p - p * p * p / 3;
  const at::Tensor kept = blanking_mask(3, 40000, 11, scalar(2), scalar(p)).to(at::kDouble).mean(1);
  for (int64_t stream = 0; stream < 3; ++stream)
    EXPECT_NEAR(1 - kept[stream].item<double>(), expected, 0.01) << stream;
}

TEST(Blanking, DrawsAnewEveryStepAndAlikeForOneSeed) {
  const auto mask = [](uint64_t seed, double step) {
    return blanking_mask(3, 64, seed, scalar(step), scalar(0.5));
  };
  EXPECT_TRUE(at::equal(mask(1, 5), mask(1, 5)));
  EXPECT_FALSE(at::equal(mask(1, 5), mask(1, 6)));
  EXPECT_FALSE(at::equal(mask(1, 5), mask(2, 5)));
}

TEST(Blanking, RampsUpInALine) {
  const BlankingRamp ramp{.largest = 0.4, .ramp_steps = 10};
  EXPECT_EQ(ramp.at(scalar(0)).item<double>(), 0);
  EXPECT_NEAR(ramp.at(scalar(5)).item<double>(), 0.2, 1e-12);
  EXPECT_EQ(ramp.at(scalar(10)).item<double>(), 0.4);
  EXPECT_EQ(ramp.at(scalar(1000)).item<double>(), 0.4);
  const BlankingRamp constant{.largest = 0.4};
  EXPECT_EQ(constant.at(scalar(0)).item<double>(), 0.4);
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
    EXPECT_TRUE(at::equal(blanking_mask(3, batch, 9, scalar(4, at::kCUDA), scalar(0.6, at::kCUDA)).cpu(),
                          blanking_mask(3, batch, 9, scalar(4), scalar(0.6))));
    EXPECT_TRUE(at::equal(dropout_factors(batch, 7, 0.5, 9, scalar(4, at::kCUDA)).cpu(),
                          dropout_factors(batch, 7, 0.5, 9, scalar(4))));
  }
}

}  // namespace
}  // namespace espalier::linet
