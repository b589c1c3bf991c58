#include "espalier/train/step/metrics.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

namespace espalier::train {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A stack of seeds in a slot.
struct Seeds {
  int64_t slot = 0;
  std::vector<int64_t> lanes;  // [E], -1 empty
  std::vector<float> norms;    // [E]
};

// One update of networks that have one value each, whose gradient is therefore the norm.
void update(const StepMetrics& metrics, const std::vector<float>& host_norms,
            const std::vector<Seeds>& seeds = {}) {
  std::deque<lanes::LaneParameter> parameters;
  std::deque<lanes::LaneSGD> optimizers;
  std::vector<lanes::UpdatedGroup> groups;
  const auto add = [&](const std::vector<int64_t>& lanes, const std::vector<float>& norms) {
    const auto entries = static_cast<int64_t>(lanes.size());
    lanes::LaneParameter& parameter =
        parameters.emplace_back(at::IntArrayRef{entries, 1}, at::kFloat, at::kFloat);
    parameter.gradient().copy_(at::tensor(norms).unsqueeze(1));
    lanes::LaneSGD& optimizer = optimizers.emplace_back(std::vector{&parameter}, lanes::LaneSgdOptions{});
    const at::Tensor none = at::zeros({std::ssize(host_norms)}, at::kDouble);
    groups.push_back({.parameters = {&parameter},
                      .optimizer = &optimizer,
                      .lanes = lanes,
                      .momentum_factors = none,
                      .weight_decays = none});
  };
  const auto lanes = static_cast<int64_t>(host_norms.size());
  std::vector<int64_t> own(host_norms.size());
  std::iota(own.begin(), own.end(), 0);
  add(own, host_norms);
  for (const Seeds& stack : seeds) {
    add(stack.lanes, stack.norms);
    groups.back().norms = metrics.seed_norms(stack.slot);
  }
  lanes::GroupUpdate all;
  all.set_groups(groups);
  all.run({.losses = at::ones({lanes}),
           .is_active = at::ones({lanes}, at::kBool),
           .peak_rates = at::ones({lanes}),
           .step = at::zeros({1}, at::kDouble)},
          metrics.update_sums());
}

TEST(StepMetrics, TakesMeansOverTheSamplesAndTheSteps) {
  StepMetrics metrics(2, 1, at::kCPU);
  // Losses times samples, hits, samples.
  metrics.scores().add_(at::tensor({4., 8., 3., 0., 4., 4.}).view({3, 2}));
  metrics.scores().add_(at::tensor({8., 8., 0., 2., 2., 4.}).view({3, 2}));
  update(metrics, {1, 5});
  update(metrics, {3, 1});
  const auto lanes = metrics.read(2);
  EXPECT_DOUBLE_EQ(lanes[0].loss, (4 * 1 + 2 * 4) / 6.0);
  EXPECT_DOUBLE_EQ(lanes[0].accuracy, 3 / 6.0);
  EXPECT_DOUBLE_EQ(lanes[1].accuracy, 2 / 8.0);
  EXPECT_DOUBLE_EQ(lanes[0].gradient_norm, 2);
  EXPECT_DOUBLE_EQ(lanes[0].largest_norm, 3);
  EXPECT_DOUBLE_EQ(lanes[1].largest_norm, 5);
}

TEST(StepMetrics, FindsTheLaneOfEveryEntryAndReadsNoEmptyOne) {
  StepMetrics metrics(4, 2, at::kCPU);
  update(metrics, {1, 1, 1, 1},
         {{1, {3, -1, 0, -1}, {0.5, kNaN, 2, 7}}, {1, {-1, 2}, {kNaN, 4}}, {0, {1}, {8}}});
  const auto lanes = metrics.read(1);
  EXPECT_EQ(lanes[0].slots, (std::vector<double>{0, 2}));
  EXPECT_EQ(lanes[1].slots, (std::vector<double>{8, 0}));
  EXPECT_EQ(lanes[2].slots, (std::vector<double>{0, 4}));
  EXPECT_EQ(lanes[3].slots, (std::vector<double>{0, 0.5}));
}

TEST(StepMetrics, KeepsWhatIsNotFiniteInItsLane) {
  StepMetrics metrics(2, 0, at::kCPU);
  for (const double loss : {static_cast<double>(kNaN), 1.})
    metrics.scores().add_(at::tensor({loss, 1., 1., 1., 1., 1.}).view({3, 2}));
  update(metrics, {kNaN, 1});
  update(metrics, {2, 1});
  const auto lanes = metrics.read(2);
  EXPECT_TRUE(std::isnan(lanes[0].loss));
  EXPECT_TRUE(std::isnan(lanes[0].largest_norm));
  EXPECT_EQ(lanes[0].non_finite, 1);
  EXPECT_EQ(lanes[1].loss, 1);
  EXPECT_EQ(lanes[1].non_finite, 0);
  metrics.clear();
  EXPECT_EQ(metrics.read(1)[0].loss, 0);
}

TEST(StepMetrics, ShowsTheLossScalesOfTheLastStep) {
  StepMetrics metrics(2, 1, at::kCPU);
  metrics.set_loss_scales(at::tensor({8.f, 16.f}));
  metrics.set_loss_scales(at::tensor({4.f, 16.f}));
  const auto lanes = metrics.read(2);
  EXPECT_EQ(lanes[0].loss_scale, 4);
  EXPECT_EQ(lanes[1].loss_scale, 16);
}

}  // namespace
}  // namespace espalier::train
