#include "espalier/policy/action/categorical.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "tests/policy/tensors.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;

TEST(Categorical, EqualsTheSoftmaxOfTheLegalLogits) {
  const at::Tensor logits = at::tensor({1.0f, 7.0f, -2.0f, 0.5f}), legal = bools({1, 0, 1, 1});
  const at::Tensor log_probs = masked_log_probs(logits, legal);
  const double sum = std::exp(1.0) + std::exp(-2.0) + std::exp(0.5);
  EXPECT_NEAR(log_probs[0].item<double>(), 1.0 - std::log(sum), 1e-6);
  EXPECT_NEAR(log_probs[2].item<double>(), -2.0 - std::log(sum), 1e-6);
  EXPECT_NEAR(log_probs[3].item<double>(), 0.5 - std::log(sum), 1e-6);
  EXPECT_EQ(log_probs[1].exp().item<double>(), 0);
}

TEST(Categorical, HasTheGradientOfLogSoftmax) {
  torch::manual_seed(1);
  const at::Tensor legal = bools({1, 0, 1, 1, 0});
  at::Tensor logits = at::randn({6, 5}, at::kDouble).set_requires_grad(true);
  const at::Tensor weight = at::randn({6, 5}, at::kDouble) * legal;
  const at::Tensor got =
      torch::autograd::grad({(masked_log_probs(logits, legal) * weight).sum()}, {logits})[0];
  const at::Tensor plain = logits.masked_fill(legal.logical_not(), -1e30).log_softmax(-1);
  const at::Tensor want = torch::autograd::grad({(plain * weight).sum()}, {logits})[0];
  EXPECT_TRUE(at::allclose(got, want, 1e-12, 1e-12));
}

TEST(Categorical, IsFiniteForExtremeLogits) {
  const float most = std::numeric_limits<float>::max(), nan = std::numeric_limits<float>::quiet_NaN();
  at::Tensor logits = at::tensor({most, -most, 0.0f, -most, most, most,  //
                                  1e-40f, 3e9f, -3e9f, nan, 1.0f, nan,   // two are illegal
                                  -most, 0.0f, -most, -200.0f, most, -201.0f});
  logits = logits.view({6, 3}).set_requires_grad(true);
  const at::Tensor legal = bools({1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1}).view({6, 3});
  const at::Tensor log_probs = masked_log_probs(logits, legal);
  EXPECT_TRUE(log_probs.isfinite().all().item<bool>()) << log_probs;
  EXPECT_TRUE(at::allclose(log_probs.exp().sum(-1), at::ones({6})));
  EXPECT_NEAR(log_probs[0][0].item<double>(), 0, 1e-6);
  EXPECT_NEAR(log_probs[1][1].item<double>(), -std::log(2.0), 1e-6);
  const at::Tensor entropy = normalised_entropy(log_probs, legal);
  EXPECT_TRUE(entropy.isfinite().all().item<bool>()) << entropy;
  const at::Tensor gradient = torch::autograd::grad({entropy.sum() + log_probs.sum()}, {logits})[0];
  EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << gradient;
}

TEST(Categorical, LetsANanAmongTheLegalThrough) {
  const at::Tensor logits = at::tensor({std::numeric_limits<float>::quiet_NaN(), 1.0f});
  EXPECT_TRUE(masked_log_probs(logits, bools({1, 1})).isnan().any().item<bool>());
}

TEST(Categorical, HasEntropyOneWhenAllLegalChoicesAreAlike) {
  const at::Tensor legal = bools({1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0}).view({4, 3});
  const at::Tensor entropy = normalised_entropy(masked_log_probs(at::full({4, 3}, 5.0f), legal), legal);
  EXPECT_TRUE(at::allclose(entropy, at::tensor({1.0f, 1.0f, 0.0f, 0.0f}))) << entropy;
}

TEST(Categorical, HasTheEntropyOfTheFormula) {
  const double p = 0.8, q = 0.2;
  const at::Tensor legal = bools({1, 0, 1});
  const at::Tensor logits = at::tensor({std::log(p), 3.0, std::log(q)}, at::kDouble);
  const double want = -(p * std::log(p) + q * std::log(q)) / std::log(2.0);
  EXPECT_NEAR(normalised_entropy(masked_log_probs(logits, legal), legal).item<double>(), want, 1e-12);
}

TEST(Categorical, DrawsEachChoiceAsOftenAsItsProbabilitySays) {
  torch::manual_seed(7);
  const int64_t draws = 200000;
  const at::Tensor legal = bools({1, 1, 0, 1});
  const at::Tensor log_probs = masked_log_probs(at::tensor({0.0f, 1.0f, 9.0f, -1.5f}), legal);
  const at::Tensor choice =
      sample_choice(log_probs.expand({draws, 4}), legal.expand({draws, 4}), at::rand({draws, 4}));
  const at::Tensor share = choice.bincount({}, 4).to(at::kDouble) / static_cast<double>(draws);
  const at::Tensor want = log_probs.exp().to(at::kDouble);
  // Five standard errors of a share.
  const at::Tensor bound = (want * (1 - want) / static_cast<double>(draws)).sqrt() * 5;
  EXPECT_TRUE((share - want).abs().le(bound).all().item<bool>()) << share << want;
}

TEST(Categorical, NeverDrawsWhatIsIllegalEvenAtTheEndsOfTheUniforms) {
  for (const float u : {0.0f, 1e-45f, 0.5f, 0.99999994f}) {
    const at::Tensor legal = bools({0, 1, 0});
    const at::Tensor log_probs = masked_log_probs(at::tensor({50.0f, -50.0f, 50.0f}), legal);
    EXPECT_EQ(sample_choice(log_probs, legal, at::full({3}, u)).item<int64_t>(), 1) << u;
  }
}

TEST(Categorical, IsAPureFunctionOfItsUniforms) {
  torch::manual_seed(2);
  const at::Tensor log_probs = masked_log_probs(at::randn({50, 6}), at::ones({6}, at::kBool));
  const at::Tensor legal = at::ones({50, 6}, at::kBool), uniforms = at::rand({50, 6});
  const at::Tensor first = sample_choice(log_probs, legal, uniforms);
  EXPECT_TRUE(at::equal(first, sample_choice(log_probs, legal, uniforms)));
  EXPECT_FALSE(at::equal(first, sample_choice(log_probs, legal, 1 - uniforms)));
}

TEST(Categorical, TakesTheLikeliestLegalChoice) {
  const at::Tensor legal = bools({0, 1, 1, 1});
  const at::Tensor log_probs = masked_log_probs(at::tensor({9.0f, 1.0f, 3.0f, 3.0f}), legal);
  EXPECT_EQ(likeliest_choice(log_probs, legal).item<int64_t>(), 2);  // the first of equals
}

TEST(Categorical, TreatsARowWithoutALegalChoiceAsItsFirstAlone) {
  const at::Tensor none = bools({0, 0, 0}), logits = at::tensor({1.0f, 2.0f, 3.0f});
  const at::Tensor log_probs = masked_log_probs(logits, none);
  EXPECT_EQ(log_probs[0].item<float>(), 0);
  EXPECT_EQ(normalised_entropy(log_probs, none).item<float>(), 0);
  EXPECT_EQ(sample_choice(log_probs, none, at::full({3}, 0.5f)).item<int64_t>(), 0);
}

TEST(Categorical, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor logits = at::zeros({2, 3});
  EXPECT_ERROR(masked_log_probs(logits, at::ones({2, 4}, at::kBool)), c10::Error, "legal", "[2, 4]");
  EXPECT_ERROR(sample_choice(logits, at::ones({2, 3}, at::kBool), at::zeros({3})), c10::Error, "uniforms",
               "[3]");
}

}  // namespace
}  // namespace espalier::policy
