#include "espalier/policy/learn/value_normalizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "tests/policy/tensors.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;
using testing::doubles;

PolicyNetwork small_network() {
  return PolicyNetwork({.num_features = 3,
                        .encoder_size = 6,
                        .hidden_size = 4,
                        .seed = 1,
                        .tensors = at::TensorOptions(at::kDouble)});
}

TEST(ValueNormalizer, ChangesNothingBeforeItsFirstUpdate) {
  const ValueNormalizer values{at::TensorOptions()};
  EXPECT_TRUE(at::equal(values.normalise(doubles({3, -4})), doubles({3, -4})));
  EXPECT_TRUE(at::equal(values.denormalise(doubles({3, -4})), doubles({3, -4})));
}

TEST(ValueNormalizer, HasTheMeanAndDeviationOfItsFirstReturns) {
  const PolicyNetwork network = small_network();
  ValueNormalizer values{at::TensorOptions()};
  at::Tensor returns = doubles({2, 4, 6, 99}).view({2, 2});
  returns[1][1] = std::numeric_limits<double>::quiet_NaN();  // does not count
  values.update(returns, bools({1, 1, 1, 0}).view({2, 2}), network);
  const double deviation = std::sqrt(8.0 / 3);
  EXPECT_TRUE(at::allclose(values.normalise(doubles({4, 4 + deviation})), doubles({0, 1}), 0, 1e-12));
  EXPECT_TRUE(at::allclose(values.denormalise(doubles({0, 1})), doubles({4, 4 + deviation})));
}

TEST(ValueNormalizer, ForgetsAtItsDecay) {
  const PolicyNetwork network = small_network();
  ValueNormalizer values(at::TensorOptions(), 0.5);
  const at::Tensor counts = bools({1, 1}).view({1, 2});
  values.update(doubles({0, 0}).view({1, 2}), counts, network);
  values.update(doubles({3, 3}).view({1, 2}), counts, network);
  // Weights 1/4 and 1/2 of 3/4: the mean is 2, that of the squares 6.
  EXPECT_NEAR(values.denormalise(doubles({0})).item<double>(), 2, 1e-12);
  EXPECT_NEAR(values.denormalise(doubles({1})).item<double>(), 2 + std::sqrt(2.0), 1e-12);
}

TEST(ValueNormalizer, KeepsWhatTheNetworkSaysOfAState) {
  torch::manual_seed(51);
  const PolicyNetwork network = small_network();
  ValueNormalizer values{at::TensorOptions()};
  const Observation seen{at::randn({5, 3}, at::kDouble), at::zeros({5, 1}, at::kLong)};
  const auto say = [&] {
    RecurrentState state = network.initial_state(5);
    return values.denormalise(network.step(seen, state).value.detach());
  };
  const at::Tensor before = say();
  for (int round = 0; round < 3; ++round) {
    values.update(at::randn({2, 6}, at::kDouble) * 40 + 100, at::ones({2, 6}, at::kBool), network);
    EXPECT_TRUE(at::allclose(say(), before, 1e-9, 1e-9)) << round;
  }
}

TEST(ValueNormalizer, IsUntouchedByARoundInWhichNothingCounts) {
  const PolicyNetwork network = small_network();
  ValueNormalizer values{at::TensorOptions()};
  values.update(doubles({1, 3}).view({1, 2}), bools({1, 1}).view({1, 2}), network);
  const at::Tensor before = values.normalise(doubles({7}));
  values.update(doubles({50, 60}).view({1, 2}), bools({0, 0}).view({1, 2}), network);
  EXPECT_TRUE(at::equal(values.normalise(doubles({7})), before));
}

TEST(ValueNormalizer, StaysFiniteWhenAllReturnsAreEqual) {
  const PolicyNetwork network = small_network();
  ValueNormalizer values{at::TensorOptions()};
  values.update(at::full({1, 3}, 5.0), at::ones({1, 3}, at::kBool), network);
  EXPECT_EQ(values.normalise(doubles({5})).item<double>(), 0);
  EXPECT_TRUE(network.value_weight().isfinite().all().item<bool>());
  EXPECT_ERROR(ValueNormalizer(at::TensorOptions(), 1.0), c10::Error, "decay", "1");
}

}  // namespace
}  // namespace espalier::policy
