#include "espalier/policy/learn/ppo.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/policy/tensors.h"

namespace espalier::policy {
namespace {

using testing::bools;
using testing::doubles;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double number(const at::Tensor& tensor) {
  return tensor.item<double>();
}

TEST(PpoAdvantages, HaveMeanZeroAndDeviationOneOverWhatCounts) {
  const at::Tensor counts = bools({1, 0, 1, 1});
  const at::Tensor got = normalise_advantages(doubles({1, kNan, 2, 6}), counts);
  const double deviation = std::sqrt((4.0 + 1 + 9) / 3);
  EXPECT_TRUE(at::allclose(got, doubles({-2, 0, -1, 3}) / deviation, 0, 1e-7)) << got;
}

TEST(PpoAdvantages, AreSafeForABatchOfOneAndForEqualOnes) {
  EXPECT_TRUE(at::equal(normalise_advantages(doubles({3}), bools({1})), doubles({3})));
  EXPECT_TRUE(at::equal(normalise_advantages(doubles({3, 4}), bools({0, 0})), doubles({0, 0})));
  const at::Tensor same = normalise_advantages(at::full({7}, 123.456f), at::ones({7}, at::kBool));
  EXPECT_LT(number(same.abs().max()), 1e-3);
}

TEST(PpoExplainedVariance, IsOneMinusTheShareThatIsLeft) {
  const at::Tensor counts = bools({1, 1, 0, 1});
  const at::Tensor returns = doubles({0, 2, kNan, 4}), values = doubles({1, 2, 5, 3});
  // Returns: variance 8/3. What is left, -1, 0, 1: variance 2/3.
  EXPECT_NEAR(number(explained_variance(values, returns, counts)), 0.75, 1e-12);
  EXPECT_EQ(number(explained_variance(values, at::full({4}, 2.0, at::kDouble), counts)), 0);
}

// A batch with everything a loss reads, and what the policy now says of it.
struct LossCase {
  PpoBatch batch;
  Evaluation evaluation;
  at::Tensor value;
  at::Tensor weights;
  PpoOptions options;
};

LossCase random_case(uint64_t seed) {
  torch::manual_seed(seed);
  const int64_t n = 3, k = 4;
  LossCase all;
  all.batch.old_log_probs = -at::rand({n, k, 8}, at::kDouble) * 2;
  all.batch.old_values = at::randn({n, k}, at::kDouble);
  all.batch.returns = at::randn({n, k}, at::kDouble);
  all.batch.advantages = at::randn({n, k}, at::kDouble);
  all.batch.counts = at::rand({n, k}) < 0.8;
  all.batch.counts[0][0] = true;
  all.evaluation.log_probs = all.batch.old_log_probs + at::randn({n, k, 8}, at::kDouble) * 0.3;
  all.evaluation.entropies = at::rand({n, k, 8}, at::kDouble);
  all.evaluation.relevant = at::rand({n, k, 8}) < 0.6;
  all.evaluation.relevant.select(-1, 0).fill_(true);
  all.value = all.batch.old_values + at::randn({n, k}, at::kDouble) * 0.4;
  all.weights = at::rand({8}, at::kDouble);
  return all;
}

struct Numbers {
  double policy = 0, value = 0, bonus = 0, entropy = 0, old_kl = 0, kl = 0, clipped = 0;
  double total(const PpoOptions& options) const { return policy - bonus + options.value_coefficient * value; }
};

// The formulas once more, number by number.
Numbers by_hand(const LossCase& all) {
  Numbers sums;
  double steps = 0, used = 0;
  for (int64_t n = 0; n < all.value.size(0); ++n) {
    for (int64_t k = 0; k < all.value.size(1); ++k) {
      if (!all.batch.counts[n][k].item<bool>()) continue;
      ++steps;
      const double a = number(all.batch.advantages[n][k]), v = number(all.value[n][k]);
      const double old = number(all.batch.old_values[n][k]), r = number(all.batch.returns[n][k]);
      double whole = 0;
      for (int64_t h = 0; h < 8; ++h) {
        if (!all.evaluation.relevant[n][k][h].item<bool>()) continue;
        ++used;
        const double logratio =
            number(all.evaluation.log_probs[n][k][h]) - number(all.batch.old_log_probs[n][k][h]);
        const double ratio = std::exp(logratio);
        whole += logratio;
        sums.policy -= std::min(ratio * a, std::clamp(ratio, 0.8, 1.2) * a);
        sums.bonus += number(all.weights[h]) * number(all.evaluation.entropies[n][k][h]);
        sums.entropy += number(all.evaluation.entropies[n][k][h]);
        sums.clipped += std::abs(ratio - 1) > 0.2;
      }
      sums.old_kl -= whole;
      sums.kl += std::exp(whole) - 1 - whole;
      const double near = old + std::clamp(v - old, -0.2, 0.2);
      sums.value += 0.5 * std::max((v - r) * (v - r), (near - r) * (near - r));
    }
  }
  return {sums.policy / steps, sums.value / steps, sums.bonus / steps, sums.entropy / used,
          sums.old_kl / steps, sums.kl / steps,    sums.clipped / used};
}

TEST(PpoLoss, EqualsItsFormulasNumberByNumber) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const LossCase all = random_case(seed);
    const Numbers want = by_hand(all);
    const PpoLoss got = ppo_loss(all.evaluation, all.value, all.batch, all.weights, all.options);
    EXPECT_NEAR(number(got.policy_loss), want.policy, 1e-12) << seed;
    EXPECT_NEAR(number(got.value_loss), want.value, 1e-12) << seed;
    EXPECT_NEAR(number(got.entropy), want.entropy, 1e-12) << seed;
    EXPECT_NEAR(number(got.old_approx_kl), want.old_kl, 1e-12) << seed;
    EXPECT_NEAR(number(got.approx_kl), want.kl, 1e-12) << seed;
    EXPECT_NEAR(number(got.clip_frac), want.clipped, 1e-6) << seed;
    EXPECT_NEAR(number(got.total), want.total(all.options), 1e-12) << seed;
    EXPECT_GT(want.clipped, 0.1) << "seed " << seed << " clips nothing";
  }
}

TEST(PpoLoss, TellsEveryHeadItsOwnEntropyRatioClippingAndKl) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    LossCase all = random_case(seed);
    all.evaluation.relevant.select(-1, 5).fill_(false);  // a head that nothing used
    const PpoLoss got = ppo_loss(all.evaluation, all.value, all.batch, all.weights, all.options);
    for (int64_t h = 0; h < 8; ++h) {
      double uses = 0, sums[kNumHeadDiagnostics] = {};
      for (int64_t n = 0; n < all.value.size(0); ++n)
        for (int64_t k = 0; k < all.value.size(1); ++k) {
          if (!all.batch.counts[n][k].item<bool>() || !all.evaluation.relevant[n][k][h].item<bool>())
            continue;
          const double logratio =
              number(all.evaluation.log_probs[n][k][h]) - number(all.batch.old_log_probs[n][k][h]);
          uses += 1;
          sums[0] += number(all.evaluation.entropies[n][k][h]);
          sums[1] += std::exp(logratio);
          sums[2] += std::abs(std::exp(logratio) - 1) > 0.2;
          sums[3] += std::exp(logratio) - 1 - logratio;
        }
      EXPECT_EQ(uses == 0, h == 5);
      EXPECT_EQ(number(got.head_uses[h]), uses) << "head " << h;
      for (int which = 0; which < kNumHeadDiagnostics; ++which)
        EXPECT_NEAR(number(got.head_sums[which][h]), sums[which], 1e-12)
            << "head " << h << ", " << kHeadDiagnosticNames[static_cast<size_t>(which)];
    }
  }
}

TEST(PpoLoss, HasTheGradientsOfFiniteDifferences) {
  LossCase all = random_case(3);
  for (at::Tensor* leaf : {&all.evaluation.log_probs, &all.evaluation.entropies, &all.value}) {
    leaf->set_requires_grad(true);
    const PpoLoss loss = ppo_loss(all.evaluation, all.value, all.batch, all.weights, all.options);
    const at::Tensor gradient = torch::autograd::grad({loss.total}, {*leaf})[0].flatten();
    leaf->set_requires_grad(false);
    at::Tensor flat = leaf->view(-1);
    for (int64_t i = 0; i < flat.size(0); i += 3) {
      const double at = number(flat[i]), step = 1e-6;
      flat[i] = at + step;
      const double above = by_hand(all).total(all.options);
      flat[i] = at - step;
      const double below = by_hand(all).total(all.options);
      flat[i] = at;
      EXPECT_NEAR(number(gradient[i]), (above - below) / (2 * step), 1e-7) << i;
    }
  }
}

TEST(PpoLoss, ReadsNothingThatDoesNotCount) {
  LossCase all = random_case(5);
  const at::Tensor want = ppo_loss(all.evaluation, all.value, all.batch, all.weights, all.options).total;
  const at::Tensor idle = all.batch.counts.logical_not();
  ASSERT_TRUE(idle.any().item<bool>());
  for (at::Tensor* tensor : {&all.batch.returns, &all.batch.advantages, &all.batch.old_values, &all.value})
    tensor->masked_fill_(idle, kNan);
  const at::Tensor unused = all.evaluation.relevant.logical_not() | idle.unsqueeze(-1);
  for (at::Tensor* tensor : {&all.batch.old_log_probs, &all.evaluation.log_probs, &all.evaluation.entropies})
    tensor->masked_fill_(unused, kNan);
  for (at::Tensor* leaf : {&all.evaluation.log_probs, &all.evaluation.entropies, &all.value})
    leaf->set_requires_grad(true);
  const at::Tensor got = ppo_loss(all.evaluation, all.value, all.batch, all.weights, all.options).total;
  EXPECT_TRUE(at::equal(got, want));
  for (const at::Tensor& gradient :
       torch::autograd::grad({got}, {all.evaluation.log_probs, all.evaluation.entropies, all.value}))
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace espalier::policy
