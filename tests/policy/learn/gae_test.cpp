#include "espalier/policy/learn/gae.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "tests/policy/tensors.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;
using testing::doubles;

GaeInput one_lane(const std::vector<double>& rewards, const std::vector<double>& values) {
  const auto steps = static_cast<int64_t>(rewards.size());
  return {.rewards = doubles(rewards).unsqueeze(0),
          .values = doubles(values).unsqueeze(0),
          .ended = at::zeros({1, steps}, at::kBool),
          .truncated = at::zeros({1, steps}, at::kBool),
          .bootstrap = at::zeros({1, steps}, at::kDouble)};
}

// gamma 1/2, lambda 1/2, so that every number can be written down.
const GaeOptions kHalves{.gamma = 0.5, .lambda = 0.5};

TEST(Gae, HasTheNumbersOneWritesByHandWhenTheEpisodeEnds) {
  GaeInput input = one_lane({1, 2, 4}, {2, 4, 8});
  input.ended[0][2] = true;
  input.bootstrap.fill_(1000);
  const Gae got = estimate_advantages(input, kHalves);
  // delta: 1 + 4/2 - 2 = 1; 2 + 8/2 - 4 = 2; 4 - 8 = -4.  A2 = -4; A1 = 2 - 4/4 = 1; A0 = 1 + 1/4.
  EXPECT_TRUE(at::equal(got.advantages[0], doubles({1.25, 1, -4}))) << got.advantages;
  EXPECT_TRUE(at::equal(got.returns[0], doubles({3.25, 5, 4}))) << got.returns;
}

TEST(Gae, BootstrapsATruncationAndNotATrueEnd) {
  GaeInput input = one_lane({1, 1, 1}, {0, 0, 0});
  input.bootstrap.fill_(8);
  input.truncated[0][1] = true;
  input.ended[0][2] = true;
  // A2 = 1, of another episode; A1 = 1 + 8/2 = 5; A0 = 1 + 5/4.
  EXPECT_TRUE(at::equal(estimate_advantages(input, kHalves).advantages[0], doubles({2.25, 5, 1})));
  input.ended[0][1] = true;  // both at once: a true end
  EXPECT_TRUE(at::equal(estimate_advantages(input, kHalves).advantages[0], doubles({1.25, 1, 1})));
}

TEST(Gae, BootstrapsTheLastStepOfAnEpisodeThatGoesOn) {
  GaeInput input = one_lane({1, 1}, {0, 0});
  input.bootstrap[0][1] = 4;
  EXPECT_TRUE(at::equal(estimate_advantages(input, kHalves).advantages[0], doubles({1.75, 3})));
}

// The definition: at every step the discounted sum of all later deltas of the same episode.
TEST(Gae, EqualsADoubleLoopOverRandomEpisodes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    torch::manual_seed(seed);
    const int64_t lanes = 1 + static_cast<int64_t>(seed % 4), steps = 1 + static_cast<int64_t>(seed);
    const GaeInput input{.rewards = at::randn({lanes, steps}, at::kDouble),
                         .values = at::randn({lanes, steps}, at::kDouble),
                         .ended = at::rand({lanes, steps}) < 0.1,
                         .truncated = at::rand({lanes, steps}) < 0.15,
                         .bootstrap = at::randn({lanes, steps}, at::kDouble)};
    const GaeOptions options;
    EXPECT_EQ(options.gamma, 0.995);
    EXPECT_EQ(options.lambda, 0.95);
    const at::Tensor got = estimate_advantages(input, options).advantages;
    const auto rewards = input.rewards.accessor<double, 2>(), values = input.values.accessor<double, 2>(),
               bootstrap = input.bootstrap.accessor<double, 2>();
    const auto ended = input.ended.accessor<bool, 2>(), truncated = input.truncated.accessor<bool, 2>();
    for (int64_t lane = 0; lane < lanes; ++lane) {
      for (int64_t from = 0; from < steps; ++from) {
        double sum = 0, weight = 1;
        for (int64_t t = from; t < steps; ++t) {
          double next = t + 1 < steps ? values[lane][t + 1] : bootstrap[lane][t];
          if (truncated[lane][t]) next = bootstrap[lane][t];
          if (ended[lane][t]) next = 0;
          sum += weight * (rewards[lane][t] + options.gamma * next - values[lane][t]);
          weight *= options.gamma * options.lambda;
          if (ended[lane][t] || truncated[lane][t]) break;
        }
        EXPECT_NEAR(got[lane][from].item<double>(), sum, 1e-12) << "seed " << seed;
      }
    }
  }
}

TEST(Gae, IgnoresWhatStandsWhereNothingIsRead) {
  GaeInput input = one_lane({1, 2, 4}, {2, 4, 8});
  input.ended[0][2] = true;
  const Gae want = estimate_advantages(input, kHalves);
  input.bootstrap.fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(at::equal(estimate_advantages(input, kHalves).advantages, want.advantages));
}

TEST(Gae, NamesTheArgumentThatDoesNotFit) {
  GaeInput input = one_lane({1, 2}, {1, 2});
  input.truncated = bools({1, 0, 1}).unsqueeze(0);
  EXPECT_ERROR(estimate_advantages(input, {}), c10::Error, "truncated", "[1, 3]");
}

}  // namespace
}  // namespace espalier::policy
