#include "espalier/policy/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "tests/policy/simulated_learner.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::SimulatedLearner;

std::map<std::string, at::Tensor> copied(const std::vector<NamedTensor>& state) {
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, tensor] : state) copies[name] = tensor.detach().clone();
  return copies;
}

TEST(PolicyCheckpoint, ContinuesAsIfNothingHadHappened) {
  const SimulatedLearner::Options options{.lanes = 4, .steps = 6, .hidden_size = 8};
  SimulatedLearner uninterrupted(options), cold(options);
  uninterrupted.learn(/*first=*/0, /*end=*/2);
  const auto saved = copied(uninterrupted.state());
  SimulatedLearner resumed({.lanes = 4, .steps = 6, .hidden_size = 8, .network_seed = 99});
  load_state(saved, resumed.state(), "here");
  uninterrupted.learn(2, 4);
  resumed.learn(2, 4);
  cold.learn(2, 4);
  const auto want = copied(uninterrupted.state()), got = copied(resumed.state());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
  EXPECT_FALSE(at::equal(copied(cold.state()).at("heads.weight"), want.at("heads.weight"))) << "a cold start";
}

TEST(PolicyCheckpoint, HasNoNameTwiceAndNothingOfALane) {
  SimulatedLearner few({.lanes = 2, .steps = 3, .hidden_size = 8}),
      many({.lanes = 7, .steps = 3, .hidden_size = 8});
  EXPECT_EQ(copied(few.state()).size(), few.state().size());
  load_state(copied(few.state()), many.state(), "here");
}

TEST(PolicyCheckpoint, RefusesWhatDoesNotFitAndChangesNothing) {
  SimulatedLearner learner({.lanes = 2, .steps = 3, .hidden_size = 8});
  const auto before = copied(learner.state());
  const auto broken = [&](auto&& change) {
    auto state = before;
    for (auto& [name, tensor] : state)
      if (tensor.is_floating_point()) tensor = tensor + 1;
    change(state);
    return state;
  };
  const auto load = [&](const auto& state) { load_state(state, learner.state(), "'a.safetensors'"); };
  EXPECT_ERROR(load(broken([](auto& state) { state.erase("value.bias"); })), Error, "'a.safetensors'",
               "'value.bias' is missing");
  EXPECT_ERROR(load(broken([](auto& state) { state["value.bias"] = at::zeros({2}); })), Error, "'value.bias'",
               "[1]", "[2]");
  EXPECT_ERROR(load(broken([](auto& state) { state["value.bias"] = at::zeros({1}, at::kLong); })), Error,
               "'value.bias'", "Float", "Long");
  EXPECT_ERROR(load(broken([](auto& state) { state["other"] = at::zeros({2}); })), Error, "'other'");
  const auto after = copied(learner.state());
  for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(after.at(name), tensor)) << name;
}

}  // namespace
}  // namespace espalier::policy
