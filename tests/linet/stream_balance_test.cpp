#include "espalier/linet/stream_balance.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "espalier/lanes/stack.h"
#include "espalier/linet/conv.h"
#include "tests/support/message.h"

namespace espalier::linet {
namespace {

// Logarithms 0, 1, 2 have the unbiased variance 1.
TEST(StreamBalanceOriginal, IsTheMeanOverLayersOfTheUnbiasedVarianceOfLogarithms) {
  const double e = std::exp(1.0);
  const std::vector<at::Tensor> layers{at::tensor({1.0, e, e * e}, at::kDouble),
                                       at::tensor({5.0, 5.0, 5.0}, at::kDouble)};
  EXPECT_NEAR(stream_balance_loss(layers, LinetRules::kOriginal).item<double>(), (1.0 + 0) / 2, 1e-7);
  EXPECT_ERROR(stream_balance_loss({at::tensor({3.0}, at::kDouble)}, LinetRules::kOriginal), c10::Error,
               "at least 2 streams", "got 1");
}

// Written out: 2 (log n_i - mean) / ((S - 1) P (n_i + eps)) is the derivative by n_i.
TEST(StreamBalanceOriginal, EqualsTheExpressionWrittenOutAndItsDerivative) {
  constexpr double kEps = 1e-8;
  const std::vector<std::vector<double>> norms{{0.3, 4.0, 0.02, 11.0}, {7.0, 6.5, 1e-7, 2.0}};
  std::vector<at::Tensor> layers;
  for (const std::vector<double>& layer : norms)
    layers.push_back(at::tensor(layer, at::kDouble).requires_grad_(true));
  const at::Tensor loss = stream_balance_loss(layers, LinetRules::kOriginal);
  double expected = 0;
  std::vector<std::vector<double>> derivatives;
  for (const std::vector<double>& layer : norms) {
    double mean = 0, squares = 0;
    for (const double norm : layer) mean += std::log(norm + kEps) / 4;
    for (const double norm : layer) squares += std::pow(std::log(norm + kEps) - mean, 2);
    expected += squares / 3 / 2;
    derivatives.emplace_back();
    for (const double norm : layer)
      derivatives.back().push_back(2 * (std::log(norm + kEps) - mean) / (3 * 2 * (norm + kEps)));
  }
  EXPECT_NEAR(loss.item<double>(), expected, 1e-13 * expected);
  const auto gradients = torch::autograd::grad({loss}, {layers[0], layers[1]});
  for (size_t layer = 0; layer < 2; ++layer)
    EXPECT_TRUE(at::allclose(gradients[layer], at::tensor(derivatives[layer], at::kDouble), 1e-12)) << layer;
}

// From the responses on: |V_i d_i| of a layer in fp64, as torch computes it.
TEST(StreamBalanceOriginal, EqualsTorchsExpressionOfALayersResponses) {
  at::manual_seed(3);
  LiConv conv({.streams = 3, .in_channels = 4, .filters = 5}, at::kDouble, at::kDouble);
  for (const lanes::LaneParameter* each : {&conv.weight[0], &conv.mix, &conv.previous})
    each->storage().copy_(at::randn(each->storage().sizes(), at::kDouble));
  const at::Tensor x = lanes::empty_lanes({4, 2, 4, 6, 7}, at::TensorOptions(at::kDouble));
  x.copy_(at::randn(x.sizes(), at::kDouble));
  const at::Tensor raw = conv.forward({x});
  std::vector<at::Tensor> logarithms;
  for (int64_t i = 0; i < 3; ++i)
    logarithms.push_back((at::conv2d(raw[i], conv.mix.value()[i]).norm() + 1e-8).log());
  const at::Tensor expected = at::stack(logarithms).var();
  const at::Tensor loss = stream_balance_loss({conv.contribution_norms(raw)}, LinetRules::kOriginal);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
  const auto own = torch::autograd::grad({loss}, {conv.mix.value()}, {}, true);
  const auto theirs = torch::autograd::grad({expected}, {conv.mix.value()});
  EXPECT_TRUE(at::allclose(own[0], theirs[0], 1e-9, 1e-12));
}

// A stream that a whole batch does without.
TEST(StreamBalanceOriginal, StaysFiniteWhereAStreamGivesNothing) {
  const at::Tensor norms = at::tensor({0.0, 2.0, 3.0}, at::kDouble).requires_grad_(true);
  const at::Tensor loss = stream_balance_loss({norms}, LinetRules::kOriginal);
  const at::Tensor expected = at::tensor({1e-8, 2 + 1e-8, 3 + 1e-8}, at::kDouble).log().var();
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
  EXPECT_TRUE(torch::autograd::grad({loss}, {norms})[0].isfinite().all().item<bool>());
}

TEST(StreamBalance, IsTheMeanOverLayersOfTheVarianceOfLogarithms) {
  const double e = std::exp(1.0);
  // Logarithms 0, 1, 2 have the variance 2/3 about their mean; equal ones have none.
  const std::vector<at::Tensor> layers{at::tensor({1.0, e, e * e}, at::kDouble),
                                       at::tensor({5.0, 5.0, 5.0}, at::kDouble)};
  EXPECT_NEAR(stream_balance_loss(layers, LinetRules::kEspalier).item<double>(), (2.0 / 3 + 0) / 2, 1e-12);
  EXPECT_EQ(stream_balance_loss({at::tensor({3.0}, at::kDouble)}, LinetRules::kEspalier).item<double>(), 0);
}

TEST(StreamBalance, SharesAddUpToOne) {
  const at::Tensor shares =
      stream_shares({at::tensor({1.0, 3.0}, at::kDouble), at::tensor({1.0, 1.0}, at::kDouble)});
  EXPECT_NEAR(shares[0].item<double>(), (0.25 + 0.5) / 2, 1e-12);
  EXPECT_NEAR(shares[1].item<double>(), (0.75 + 0.5) / 2, 1e-12);
}

}  // namespace
}  // namespace espalier::linet
