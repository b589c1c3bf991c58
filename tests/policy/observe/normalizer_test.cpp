#include "espalier/policy/observe/normalizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "tests/policy/tensors.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;

at::Tensor all(int64_t lanes) {
  return at::ones({lanes}, at::kBool);
}

TEST(ObservationNormalizer, ChangesNothingBeforeItKnowsAnything) {
  ObservationNormalizer normalizer(3, at::kFloat);
  const at::Tensor x = at::tensor({-2.5f, 0.f, 9.f}).unsqueeze(0);
  EXPECT_TRUE(at::equal(normalizer.normalise(x), x));
  normalizer.publish();
  EXPECT_TRUE(at::equal(normalizer.normalise(x), x));
  EXPECT_EQ(normalizer.normalise(x * 1e6).abs().max().item<float>(), 10);
}

TEST(ObservationNormalizer, HasTheMeanAndDeviationOfAllThatCounted) {
  torch::manual_seed(4);
  ObservationNormalizer normalizer(4, at::kFloat);
  std::vector<at::Tensor> counted;
  for (int step = 0; step < 9; ++step) {
    at::Tensor x = at::randn({5, 4}) * 3 + at::tensor({0.f, 100.f, -7.f, 0.01f}) + step;
    const at::Tensor counts = step == 3 ? at::zeros({5}, at::kBool) : at::rand({5}) < 0.7;
    counted.push_back(x.index({counts}));
    x = at::where(counts.unsqueeze(1), x, std::numeric_limits<float>::quiet_NaN());
    normalizer.collect(x, counts);
  }
  normalizer.publish();
  const at::Tensor x = at::cat(counted).to(at::kDouble);
  const at::Tensor want = (x - x.mean(0)) / x.std(0, /*unbiased=*/false);
  EXPECT_TRUE(at::allclose(normalizer.normalise(at::cat(counted)).to(at::kDouble), want, 1e-4, 1e-4));
}

TEST(ObservationNormalizer, DoesNotMoveWithinARound) {
  ObservationNormalizer normalizer(2, at::kFloat);
  normalizer.collect(at::randn({4, 2}), all(4));
  normalizer.publish();
  const at::Tensor x = at::randn({3, 2}), before = normalizer.normalise(x);
  normalizer.collect(at::randn({4, 2}) + 50, all(4));
  EXPECT_TRUE(at::equal(normalizer.normalise(x), before));
  normalizer.publish();
  EXPECT_FALSE(at::equal(normalizer.normalise(x), before));
}

TEST(ObservationNormalizer, IsBoundedForAFeatureThatNeverVaried) {
  ObservationNormalizer normalizer(1, at::kFloat);
  normalizer.collect(at::zeros({8, 1}), all(8));
  normalizer.publish();
  EXPECT_EQ(normalizer.normalise(at::zeros({1, 1})).item<float>(), 0);
  EXPECT_EQ(normalizer.normalise(at::ones({1, 1})).item<float>(), 10);
}

TEST(ObservationNormalizer, NamesTheArgumentThatDoesNotFit) {
  ObservationNormalizer normalizer(2, at::kFloat);
  EXPECT_ERROR(normalizer.collect(at::zeros({4, 3}), all(4)), c10::Error, "features", "[4, 3]");
  EXPECT_ERROR(normalizer.collect(at::zeros({4, 2}), bools({1})), c10::Error, "counts", "[1]");
}

}  // namespace
}  // namespace espalier::policy
