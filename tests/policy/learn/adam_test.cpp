#include "espalier/policy/learn/adam.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "tests/policy/tensors.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::doubles;

const at::Tensor kYes = at::ones({}, at::kBool), kNo = at::zeros({}, at::kBool);

TEST(Adam, TakesTorchsSteps) {
  torch::manual_seed(41);
  const at::Tensor start = at::randn({3, 4}, at::kDouble);
  const at::Tensor ours = start.clone();
  at::Tensor theirs = start.clone().set_requires_grad(true);
  Adam adam({{"w", ours}}, {.learning_rate = 0.01});
  torch::optim::Adam reference({theirs}, torch::optim::AdamOptions(0.01).eps(1e-5));
  for (int step = 0; step < 20; ++step) {
    const at::Tensor gradient = at::randn({3, 4}, at::kDouble);
    theirs.mutable_grad() = gradient.clone();
    reference.step();
    adam.step({gradient}, kYes);
    EXPECT_TRUE(at::allclose(ours, theirs, 1e-12, 1e-14)) << step;
  }
}

TEST(Adam, LeavesEverythingAsItWasWhenAStepIsRefused) {
  torch::manual_seed(42);
  const at::Tensor weight = at::randn({5});
  Adam adam({{"w", weight}}, {});
  adam.step({at::randn({5})}, kYes);
  const at::Tensor before = weight.clone();
  std::vector<at::Tensor> state;
  for (const NamedTensor& named : adam.state()) state.push_back(named.tensor.clone());
  adam.step({at::full({5}, std::numeric_limits<float>::quiet_NaN())}, kNo);
  EXPECT_TRUE(at::equal(weight, before));
  for (size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(at::equal(adam.state()[i].tensor, state[i]));
}

TEST(Adam, ClipsTheNormOfAllGradientsTogether) {
  const std::vector<at::Tensor> gradients{doubles({3, 0}), doubles({4})};
  EXPECT_DOUBLE_EQ(clip_gradients_(gradients, 0.5).item<double>(), 5);
  EXPECT_NEAR(gradients[0][0].item<double>(), 0.3, 1e-6);
  EXPECT_NEAR(gradients[1][0].item<double>(), 0.4, 1e-6);
  EXPECT_NEAR(clip_gradients_(gradients, 0.6).item<double>(), 0.5, 1e-6);
  EXPECT_NEAR(gradients[1][0].item<double>(), 0.4, 1e-6);  // small ones are left alone
}

TEST(Adam, NamesTheArgumentThatDoesNotFit) {
  EXPECT_ERROR(Adam({}, {}), c10::Error, "parameters", "none");
  Adam adam({{"w", at::zeros({2})}}, {});
  EXPECT_ERROR(adam.step({}, kYes), c10::Error, "gradients", "want 1, got 0");
}

}  // namespace
}  // namespace espalier::policy
