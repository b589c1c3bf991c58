#include "espalier/policy/action/uniforms.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

at::Tensor number(int64_t value) {
  return at::full({1}, value, at::kLong);
}

at::Tensor draw(int64_t seed, int64_t round, int64_t step, int64_t lanes = 3, int64_t choices = 37) {
  return choice_uniforms(static_cast<uint64_t>(seed), number(round), number(step), lanes, choices);
}

TEST(ChoiceUniforms, DependOnSeedRoundStepLaneAndChoice) {
  const at::Tensor base = draw(1, 2, 3);
  EXPECT_TRUE(at::equal(base, draw(1, 2, 3)));
  for (const at::Tensor& other : {draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4), draw(1, 3, 2)})
    EXPECT_LT(base.eq(other).sum().item<int64_t>(), 3);
  EXPECT_LT(base[0].eq(base[1]).sum().item<int64_t>(), 2);
  EXPECT_EQ(std::get<0>(at::_unique(base)).numel(), base.numel()) << "of 111 numbers of 24 bits, all differ";
}

TEST(ChoiceUniforms, DoNotDependOnHowManyLanesAndChoicesThereAre) {
  EXPECT_TRUE(at::equal(draw(1, 2, 3, 9, 50).slice(0, 0, 3).slice(1, 0, 37), draw(1, 2, 3)));
}

TEST(ChoiceUniforms, AreUniform) {
  const at::Tensor all = draw(5, 0, 0, 1000, 100);
  EXPECT_GE(all.min().item<float>(), 0);
  EXPECT_LT(all.max().item<float>(), 1);
  // 100,000 of them: a tenth has a standard error of 0.001.
  const at::Tensor tenths = (all * 10).to(at::kLong).flatten().bincount();
  for (int i = 0; i < 10; ++i) EXPECT_NEAR(tenths[i].item<double>() / 1e5, 0.1, 0.005) << i;
}

TEST(ChoiceUniforms, NameTheArgumentThatDoesNotFit) {
  EXPECT_ERROR(choice_uniforms(1, at::zeros({2}, at::kLong), number(0), 1, 1), c10::Error, "round", "[2]");
}

TEST(ChoiceUniformsCuda, AreThoseOfTheCpuToTheBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const int64_t lanes : {0, 1, 31, 32, 33, 257})
    EXPECT_TRUE(at::equal(choice_uniforms(9, number(4).cuda(), number(5).cuda(), lanes, 37).cpu(),
                          choice_uniforms(9, number(4), number(5), lanes, 37)));
}

}  // namespace
}  // namespace espalier::policy
