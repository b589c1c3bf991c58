#include "bench/growing/model.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"

namespace espalier::bench {
namespace {

// Steps of a machine that has these very prices.
std::vector<WorkPoint> steps_at(const GrowingModel& prices) {
  std::vector<WorkPoint> points;
  for (const SeedWork& work : {SeedWork{1, 4e6, 1e9}, SeedWork{6, 4e6, 1e9}, SeedWork{1, 8e6, 0},
                               SeedWork{6, 2e6, 9e9}, SeedWork{2, 1e6, 3e8}})
    points.push_back({work, prices.at(work)});
  return points;
}

TEST(GrowingModel, FindsThePricesOfTheModelItself) {
  const GrowingModel prices{.bare_us = 1000, .stack_us = 12, .byte_us = 2e-6, .flop_us = 5e-8};
  const GrowingModel found = fit_growing(1000, steps_at(prices));
  EXPECT_NEAR(found.stack_us, 12, 1e-6);
  EXPECT_NEAR(found.byte_us, 2e-6, 1e-12);
  EXPECT_NEAR(found.flop_us, 5e-8, 1e-14);
  EXPECT_NEAR(found.largest_error, 0, 1e-9);
  // A step that it was not fitted to: 1000 + 42 * 12 + 20 + 500.
  EXPECT_NEAR(found.at({42, 1e7, 1e10}), 2024, 1e-4);
  EXPECT_EQ(found.text(),
            "a bare step of 1000.0 us, 12.0 us a stack, bytes at 0.5 TB/s, products at 20 TFLOP/s");
}

TEST(GrowingModel, LeavesAPriceOutRatherThanPayForWork) {
  // The more bytes, the faster: no bytes are paid for, and the rest is fitted without them.
  const GrowingModel odd{.bare_us = 1000, .stack_us = 20, .byte_us = -1e-6, .flop_us = 5e-8};
  const GrowingModel found = fit_growing(1000, steps_at(odd));
  EXPECT_EQ(found.byte_us, 0);
  EXPECT_GT(found.stack_us, 10);
  EXPECT_GT(found.flop_us, 0);
  EXPECT_GT(found.largest_error, 0);
  EXPECT_GE(found.largest_error, found.mean_error);
  EXPECT_NE(found.text().find("bytes free"), std::string::npos);
  // Faster than bare, whatever stands there: nothing is paid for.
  const GrowingModel none = fit_growing(2000, {{{1, 1e6, 1e9}, 1000}, {{2, 3e6, 1e8}, 900}});
  EXPECT_EQ(none.at({7, 1e9, 1e12}), 2000);
}

TEST(GrowingModel, TellsPricesApartAsFarAsStepsDo) {
  // Bytes and products are in one ratio: they cannot be told apart, and the prediction is right all the same.
  const GrowingModel found = fit_growing(100, {{{1, 1e6, 1e9}, 210}, {{1, 2e6, 2e9}, 310}});
  EXPECT_NEAR(found.at({1, 3e6, 3e9}), 410, 1e-6);
  EXPECT_THROW(fit_growing(100, {}), Error);
  EXPECT_THROW(fit_growing(100, {{{1, 1, 1}, 0}}), Error);
}

TEST(GrowingModel, CountsTheProductsOfEveryBlueprint) {
  const grow::BlueprintRegistry blueprints;
  const grow::SeedShape shape{.channels = 32, .height = 5, .width = 7};
  constexpr int64_t kSamples = 3, kPositions = 35;
  for (const auto& [name, norm_parameters] : {std::pair{"depthwise", 64},
                                              {"bottleneck", 64},
                                              {"conv_small", 64},
                                              {"conv_light", 64},
                                              {"conv_heavy", 128}}) {
    // Every weight of a convolution is multiplied once at every position, in each of three passes.
    const int64_t weights = blueprints.at(blueprints.index_of(name)).num_parameters(shape) - norm_parameters;
    EXPECT_EQ(work_of(name, shape, kSamples, 2).flops,
              static_cast<double>(6 * kSamples * kPositions * weights))
        << name;
  }
  EXPECT_EQ(work_of("norm", shape, kSamples, 2).flops, 0);
  EXPECT_EQ(work_of("attention", shape, kSamples, 2).flops, 6 * kSamples * 2 * 32 * 8);
  for (const std::string& name : blueprints.names()) {
    const double bytes = work_of(name, shape, kSamples, 2).bytes;
    EXPECT_GE(bytes, 8 * kSamples * kPositions * 32 * 2) << name;
    EXPECT_EQ(work_of(name, shape, kSamples, 4).bytes, 2 * bytes) << name;
  }
}

}  // namespace
}  // namespace espalier::bench
