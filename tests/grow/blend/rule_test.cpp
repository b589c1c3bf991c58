#include "espalier/grow/blend/rule.h"

#include "espalier/grow/blend/op.h"
#include "tests/lanes/compare.h"

namespace espalier::grow {
namespace {

using lanes::testing::random_lanes;

TEST(BlendRule, TellsArithmeticFromWhatPasses) {
  using enum BlendOperator;
  for (const auto chosen : {kAdd, kMultiply, kGate}) {
    EXPECT_EQ((LaneBlend{.amplitude = 1, .blend_operator = chosen, .isolated = true}.rule()),
              BlendRule::kIsolated);
    EXPECT_EQ((LaneBlend{.amplitude = 0, .blend_operator = chosen, .isolated = true}.rule()),
              BlendRule::kIsolated);
    EXPECT_EQ((LaneBlend{.amplitude = 0, .blend_operator = chosen}.rule()), BlendRule::kThrough);
    EXPECT_EQ((LaneBlend{.amplitude = -0.f, .blend_operator = chosen}.rule()), BlendRule::kThrough);
    EXPECT_EQ((LaneBlend{.amplitude = 0.1f, .blend_operator = chosen}.rule()),
              chosen == kMultiply ? BlendRule::kProduct : BlendRule::kSum);
  }
}

// What kernels compute with is what the op on the CPU does, value by value.
TEST(BlendRule, BlendsAValueAsTheOpDoes) {
  using enum BlendOperator;
  for (const auto chosen : {kAdd, kMultiply, kGate}) {
    const BlendTable table{.entries = at::zeros({1}, at::kLong),
                           .entry_of_lane = at::zeros({1}, at::kLong),
                           .amplitude = at::full({1}, 0.3f),
                           .blend_operator = at::full({1}, static_cast<int>(chosen), at::kByte),
                           .isolated = at::zeros({1}, at::kBool)};
    at::Tensor h = random_lanes({1, 1, 5, 1, 1}), s = random_lanes({1, 1, 5, 1, 1});
    const at::Tensor gates = random_lanes({1, 1}).sigmoid_(), grad = random_lanes({1, 1, 5, 1, 1});
    h.set_requires_grad(true);
    s.set_requires_grad(true);
    const at::Tensor out = lane_blend(h, s, gates, table);
    const auto grads = torch::autograd::grad({out}, {h, s}, {grad});
    const double a = 0.3f, weight = chosen == kGate ? a * gates.item<double>() : a;
    const BlendRule rule = LaneBlend{.amplitude = 0.3f, .blend_operator = chosen}.rule();
    for (int64_t i = 0; i < 5; ++i) {
      const auto at_i = [&](const at::Tensor& t) { return t.detach().flatten()[i].item<double>(); };
      EXPECT_NEAR(blended(rule, weight, at_i(h), at_i(s)), at_i(out), 1e-14);
      const auto [grad_h, grad_s] = blend_gradient(rule, weight, at_i(h), at_i(s), at_i(grad));
      EXPECT_NEAR(grad_h, at_i(grads[0]), 1e-14);
      EXPECT_NEAR(grad_s, at_i(grads[1]), 1e-14);
    }
  }
}

}  // namespace
}  // namespace espalier::grow
