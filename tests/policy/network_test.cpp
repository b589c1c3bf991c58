#include "espalier/policy/network.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "espalier/policy/orthogonal.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

NetworkOptions small(at::ScalarType type = at::kFloat) {
  return {.space = {.num_slots = 2, .num_blueprints = 3},
          .num_features = 5,
          .encoder_size = 12,
          .hidden_size = 8,
          .seed = 4,
          .tensors = at::TensorOptions(type)};
}

// [L,T,...] of a network's sizes.
Observation random_observation(const NetworkOptions& options, int64_t lanes, int64_t steps) {
  const at::TensorOptions type = at::TensorOptions(options.tensors.dtype());
  return {.features = at::randn({lanes, steps, options.num_features}, type),
          .blueprints = at::randint(-1, options.space.num_blueprints, {lanes, steps, options.space.num_slots},
                                    at::kLong)};
}

Observation at_step(const Observation& seen, int64_t t) {
  return {.features = seen.features.select(1, t), .blueprints = seen.blueprints.select(1, t)};
}

const at::Tensor& parameter(const PolicyNetwork& network, const std::string& name) {
  for (const NamedTensor& named : network.parameters())
    if (named.name == name) return named.tensor;
  throw std::runtime_error("no parameter " + name);
}

TEST(PolicyNetwork, GivesASequenceTheNumbersOfItsSteps) {
  torch::manual_seed(11);
  const PolicyNetwork network(small());
  const Observation seen = random_observation(network.options(), 3, 9);
  const at::Tensor clears = at::rand({3, 9}) < 0.3;
  RecurrentState state{at::randn({3, 8}), at::randn({3, 8})};
  const NetworkOutput whole = network.sequence(seen, state, clears);
  EXPECT_EQ(whole.logits.sizes(), (std::vector<int64_t>{3, 9, network.options().space.num_choices()}));
  EXPECT_EQ(whole.value.sizes(), (std::vector<int64_t>{3, 9}));
  for (int64_t t = 0; t < 9; ++t) {
    const NetworkOutput one = network.step(at_step(seen, t), state, clears.select(1, t));
    EXPECT_TRUE(at::allclose(one.logits, whole.logits.select(1, t), 1e-6, 1e-6)) << t;
    EXPECT_TRUE(at::allclose(one.value, whole.value.select(1, t), 1e-6, 1e-6)) << t;
  }
}

TEST(PolicyNetwork, ForgetsEverythingWhereAnEpisodeBegins) {
  torch::manual_seed(12);
  const PolicyNetwork network(small());
  const Observation seen = random_observation(network.options(), 2, 6);
  at::Tensor clears = at::zeros({2, 6}, at::kBool);
  clears[1][3] = true;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const NetworkOutput whole = network.sequence(seen, network.initial_state(2), clears);
  Observation later{seen.features.slice(1, 3), seen.blueprints.slice(1, 3)};
  at::Tensor later_clears = clears.slice(1, 3).clone();
  RecurrentState lost{at::full({2, 8}, nan), at::full({2, 8}, nan)};
  const NetworkOutput rest = network.sequence(later, lost, later_clears);
  EXPECT_TRUE(at::allclose(rest.value[1], whole.value[1].slice(0, 3), 1e-6, 1e-6));
  EXPECT_TRUE(rest.value[0].isnan().all().item<bool>());  // the other lane did need its memory
}

TEST(PolicyNetwork, ComputesWhatTorchsModulesCompute) {
  torch::manual_seed(13);
  const PolicyNetwork network(small(at::kDouble));
  const int64_t lanes = 3, steps = 5;
  const Observation seen = random_observation(network.options(), lanes, steps);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(12, 8).batch_first(true));
  lstm->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    auto named = lstm->named_parameters();
    named["weight_ih_l0"].copy_(parameter(network, "lstm.input_weight"));
    named["weight_hh_l0"].copy_(parameter(network, "lstm.hidden_weight"));
    named["bias_ih_l0"].copy_(parameter(network, "lstm.bias"));
    named["bias_hh_l0"].zero_();
  }
  const at::Tensor embedded =
      parameter(network, "embedding.weight").index({seen.blueprints + 1}).reshape({lanes, steps, -1});
  const at::Tensor linear =
      at::cat({seen.features, embedded}, -1).matmul(parameter(network, "encoder.weight").t());
  const at::Tensor centred = linear - linear.mean(-1, true);
  const at::Tensor encoded = (centred / (centred.square().mean(-1, true) + 1e-5).sqrt()).relu();
  const at::Tensor hidden = std::get<0>(lstm->forward(encoded));
  const NetworkOutput got =
      network.sequence(seen, network.initial_state(lanes), at::zeros({lanes, steps}, at::kBool));
  EXPECT_TRUE(at::allclose(got.logits, hidden.matmul(parameter(network, "heads.weight").t()), 1e-10, 1e-12));
  EXPECT_TRUE(at::allclose(got.value, hidden.matmul(parameter(network, "value.weight")[0]), 1e-10, 1e-12));
}

TEST(PolicyNetwork, SendsAGradientToEveryParameter) {
  torch::manual_seed(14);
  const PolicyNetwork network(small());
  const Observation seen = random_observation(network.options(), 2, 4);
  const NetworkOutput out = network.sequence(seen, network.initial_state(2), at::zeros({2, 4}, at::kBool));
  (out.logits.square().sum() + out.value.square().sum()).backward();
  for (const NamedTensor& named : network.parameters()) {
    ASSERT_TRUE(named.tensor.grad().defined()) << named.name;
    EXPECT_GT(named.tensor.grad().abs().sum().item<double>(), 0) << named.name;
  }
}

TEST(PolicyNetwork, StartsOrthogonalAndRemembering) {
  const PolicyNetwork network(small(at::kDouble));
  const at::Tensor bias = parameter(network, "lstm.bias");
  EXPECT_TRUE(at::equal(bias.slice(0, 8, 16), at::ones({8}, at::kDouble)));
  EXPECT_EQ(bias.abs().sum().item<double>(), 8);
  for (int64_t gate = 0; gate < 4; ++gate) {
    const at::Tensor part = parameter(network, "lstm.hidden_weight").narrow(0, gate * 8, 8);
    EXPECT_TRUE(at::allclose(part.matmul(part.t()), at::eye(8, at::kDouble), 0, 1e-12)) << gate;
  }
  const at::Tensor encoder = parameter(network, "encoder.weight");  // [12,13]
  EXPECT_TRUE(at::allclose(encoder.matmul(encoder.t()), at::eye(12, at::kDouble) * 2, 0, 1e-12));
}

TEST(PolicyNetwork, StartsNearlyIndifferent) {
  torch::manual_seed(15);
  const PolicyNetwork network(small());
  RecurrentState state = network.initial_state(4);
  const Observation seen = random_observation(network.options(), 4, 1);
  EXPECT_LT(network.step(at_step(seen, 0), state).logits.abs().max().item<double>(), 0.05);
}

TEST(PolicyNetwork, StartsFromItsSeedAlone) {
  torch::manual_seed(1);
  const PolicyNetwork first(small());
  torch::manual_seed(2);
  const PolicyNetwork again(small());
  NetworkOptions other = small();
  other.seed = 5;
  const PolicyNetwork different(other);
  for (size_t i = 0; i < first.parameters().size(); ++i) {
    EXPECT_EQ(first.parameters()[i].name, again.parameters()[i].name);
    EXPECT_TRUE(at::equal(first.parameters()[i].tensor, again.parameters()[i].tensor));
  }
  EXPECT_FALSE(at::equal(parameter(first, "heads.weight"), parameter(different, "heads.weight")));
}

TEST(PolicyNetwork, NamesTheArgumentThatDoesNotFit) {
  const PolicyNetwork network(small());
  RecurrentState state = network.initial_state(2);
  EXPECT_ERROR(network.step({at::zeros({2, 4}), at::zeros({2, 2}, at::kLong)}, state), c10::Error, "features",
               "[2, 4]");
  EXPECT_ERROR(network.step({at::zeros({2, 5}), at::zeros({3, 2}, at::kLong)}, state), c10::Error,
               "blueprints", "[3, 2]");
  NetworkOptions none = small();
  none.hidden_size = 0;
  EXPECT_ERROR(PolicyNetwork{none}, c10::Error, "hidden_size", "0");
}

TEST(Orthogonal, HasAnOrthonormalShorterSideWhateverTheShape) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 7}, {7, 3}, {5, 5}, {1, 4}, {4, 1}}) {
    const at::Tensor weight = at::empty({rows, columns}, at::kDouble);
    init_orthogonal_(weight, 3, 9, "w");
    const at::Tensor square = rows <= columns ? weight.matmul(weight.t()) : weight.t().matmul(weight);
    EXPECT_TRUE(at::allclose(square, at::eye(std::min(rows, columns), at::kDouble) * 9, 0, 1e-12))
        << rows << "x" << columns;
  }
}

}  // namespace
}  // namespace espalier::policy
