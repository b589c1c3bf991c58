#include "espalier/grow/seeds/branch_formula.h"

#include "espalier/grow/seeds/branch.h"
#include "tests/lanes/compare.h"

namespace espalier::grow {
namespace {

// A curve's value and gradient, and the formulas that kernels use for them.
template <Formula kForward, Formula kBackward, class Op>
void expect_formulas(const Op& op) {
  const double values[] = {-1.5, -0.25, 0, 0.25, 3, std::numeric_limits<double>::quiet_NaN()};
  for (const double input : values) {
    const at::Tensor x = at::full({1, 1, 1, 1, 1}, input, at::kDouble).set_requires_grad(true);
    const at::Tensor out = op(x);
    const double value = out.item<double>(), mine = formula_of<kForward>(input, 0.0);
    const double slope = torch::autograd::grad({out}, {x}, {at::full_like(out, 1.75)})[0].item<double>();
    const double my_slope = formula_of<kBackward>(1.75, value);
    const auto same = [](double a, double b) {
      return std::isnan(a) ? std::isnan(b) : std::abs(a - b) <= 1e-14;
    };
    EXPECT_TRUE(same(mine, value)) << input << ": " << mine << " " << value;
    EXPECT_TRUE(same(my_slope, slope)) << input << ": " << my_slope << " " << slope;
  }
}

TEST(BranchFormula, ComputesAValueAsTheOpsDo) {
  const auto curve = [](Curve kind) { return [kind](const at::Tensor& x) { return lane_curve(x, kind); }; };
  expect_formulas<Formula::kRelu, Formula::kWhereOutput>(curve(Curve::kRelu));
  expect_formulas<Formula::kSigmoid, Formula::kSigmoidSlope>(curve(Curve::kSigmoid));
  expect_formulas<Formula::kTanh, Formula::kTanhSlope>(curve(Curve::kTanh));
  EXPECT_EQ(formula_of<Formula::kSum>(1.5, 2.0), 3.5);
  EXPECT_EQ(mixed(1.0, 3.0, 0.25), 1.5);
}

}  // namespace
}  // namespace espalier::grow
