#include "espalier/grow/branch_formula.h"

#include "espalier/grow/lane_branch.h"
#include "tests/lanes/lane_compare.h"

namespace espalier::grow {
namespace {

// out and, of the last input, its gradient; then the formulas that kernels use for them.
template <Formula kForward, Formula kBackward, class Op>
void expect_formulas(const Op& op, bool saves_output) {
  const double values[] = {-1.5, -0.25, 0, 0.25, 3, std::numeric_limits<double>::quiet_NaN()};
  for (const double first : values)
    for (const double second : values) {
      const auto leaf = [](double value) {
        return at::full({1, 1, 1, 1, 1}, value, at::kDouble).set_requires_grad(true);
      };
      const at::Tensor a = leaf(first), b = leaf(second);
      const at::Tensor out = op(a, b);
      const at::Tensor last = has_second(kForward) ? b : a;
      const at::Tensor grad = at::full_like(out, 1.75);
      const double value = out.item<double>(), mine = formula_of<kForward>(first, second);
      const double slope = torch::autograd::grad({out}, {last}, {grad})[0].item<double>();
      const double my_slope = formula_of<kBackward>(1.75, saves_output ? value : second);
      const auto same = [](double x, double y) {
        return std::isnan(x) ? std::isnan(y) : std::abs(x - y) <= 1e-14;
      };
      EXPECT_TRUE(same(mine, value)) << first << " " << second << ": " << mine << " " << value;
      EXPECT_TRUE(same(my_slope, slope)) << first << " " << second << ": " << my_slope << " " << slope;
    }
}

TEST(BranchFormula, ComputesAValueAsTheOpsDo) {
  const auto residual = [](Residual kind) {
    return [kind](const at::Tensor& a, const at::Tensor& b) { return lane_residual(a, b, kind); };
  };
  const auto curve = [](Curve kind) {
    return [kind](const at::Tensor& a, const at::Tensor&) { return lane_curve(a, kind); };
  };
  expect_formulas<Formula::kSumRelu, Formula::kWhereOutput>(residual(Residual::kSumRelu), true);
  expect_formulas<Formula::kSumRectified, Formula::kWhereRectified>(residual(Residual::kRectifiedSum), false);
  expect_formulas<Formula::kRelu, Formula::kWhereOutput>(curve(Curve::kRelu), true);
  expect_formulas<Formula::kSigmoid, Formula::kSigmoidSlope>(curve(Curve::kSigmoid), true);
  expect_formulas<Formula::kTanh, Formula::kTanhSlope>(curve(Curve::kTanh), true);
  EXPECT_EQ(formula_of<Formula::kSum>(1.5, 2.0), 3.5);
  EXPECT_EQ(mixed(1.0, 3.0, 0.25), 1.5);
}

}  // namespace
}  // namespace espalier::grow
