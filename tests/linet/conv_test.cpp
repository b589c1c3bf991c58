#include "espalier/linet/conv.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/lanes/stack.h"
#include "tests/lanes/compare.h"
#include "tests/support/message.h"
#include "tests/support/stacked_layout.h"

namespace espalier::linet {
namespace {

using lanes::testing::Dice;
using lanes::testing::random_lanes;

double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

void fill(LiConv& conv) {
  for (lanes::LaneParameter& weight : conv.weight) weight.storage().normal_();
  for (lanes::LaneParameter* parameter : {&conv.mix, &conv.previous, &conv.bias})
    if (parameter->defined()) parameter->storage().normal_();
}

// The formulas, by torch's own convolutions. Returns [S+1,B,K,H',W'].
at::Tensor plain(const LiConv& conv, const std::vector<at::Tensor>& x, int64_t stride, int64_t padding) {
  const int64_t streams = conv.mix.value().size(0);
  const bool is_apart = !conv.has_previous();
  std::vector<at::Tensor> paths;
  at::Tensor z;
  for (int64_t i = 0; i < streams; ++i) {
    const auto s = static_cast<size_t>(i);
    const at::Tensor in = is_apart ? x[s][0] : x[0][i];
    const at::Tensor w = is_apart ? conv.weight[s].value()[0] : conv.weight[0].value()[i];
    const at::Tensor d = at::conv2d(in, w, {}, stride, padding);
    const at::Tensor part = at::conv2d(d, conv.mix.value()[i]);
    z = z.defined() ? z + part : part;
    paths.push_back(conv.bias.defined() ? d + conv.bias.value()[i].view({1, -1, 1, 1}) : d);
  }
  if (!is_apart) z = z + at::conv2d(x[0][streams], conv.previous.value()[0], {}, stride);
  if (conv.bias.defined()) z = z + conv.bias.value()[streams].view({1, -1, 1, 1});
  paths.push_back(z);
  return at::stack(paths);
}

// Output and gradients of every input and parameter, here and by torch.
void expect_plain(const LiConv& conv, const std::vector<at::Tensor>& x, int64_t stride, int64_t padding) {
  torch::autograd::variable_list wanted(x.begin(), x.end());
  for (const lanes::LaneParameter& weight : conv.weight) wanted.push_back(weight.value());
  for (const lanes::LaneParameter* parameter : {&conv.mix, &conv.previous, &conv.bias})
    if (parameter->defined()) wanted.push_back(parameter->value());
  const at::Tensor out = conv.forward(x), expected = plain(conv, x, stride, padding);
  ASSERT_EQ(out.sizes(), expected.sizes());
  EXPECT_LE(largest(out - expected), 1e-9 * largest(expected));
  EXPECT_TRUE(support::is_stacked_channels_last(out.detach()));
  const at::Tensor grad = random_lanes(out.sizes());
  const auto own = torch::autograd::grad({out}, wanted, {grad});
  const auto theirs = torch::autograd::grad({expected}, wanted, {grad});
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_LE(largest(own[i] - theirs[i]), 1e-9 * largest(theirs[i])) << "gradient " << i;
}

TEST(LiConv, IsTheFormulaOverRandomShapes) {
  for (uint64_t seed = 0; seed < lanes::testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int64_t streams = dice.roll(1, 4), kernel = 2 * dice.roll(0, 1) + 1, stride = dice.roll(1, 2);
    const int64_t channels = dice.roll(1, 7);
    LiConv conv({.streams = streams,
                 .in_channels = channels,
                 .filters = dice.roll(1, 6),
                 .kernel_size = kernel,
                 .stride = stride,
                 .has_bias = dice.roll(0, 1) == 1},
                at::kDouble, at::kDouble);
    fill(conv);
    const at::Tensor x =
        random_lanes({streams + 1, dice.roll(1, 4), channels, dice.roll(1, 8), dice.roll(1, 8)})
            .set_requires_grad(true);
    expect_plain(conv, {x}, stride, kernel / 2);
  }
}

TEST(LiConv, TakesStreamsOfDifferentChannelsInAFirstLayer) {
  for (const bool has_bias : {false, true}) {
    LiConv conv(
        {.streams = 3, .apart = {3, 1, 2}, .filters = 5, .kernel_size = 7, .stride = 2, .has_bias = has_bias},
        at::kDouble, at::kDouble);
    fill(conv);
    EXPECT_FALSE(conv.has_previous());
    std::vector<at::Tensor> x;
    for (const int64_t channels : {3, 1, 2})
      x.push_back(random_lanes({1, 4, channels, 9, 12}).set_requires_grad(true));
    expect_plain(conv, x, 2, 3);
  }
}

TEST(LiConv, LeavesAGradientThatSomebodyElseHoldsAsItIs) {
  LiConv conv({.streams = 2, .in_channels = 3, .filters = 4}, at::kDouble, at::kDouble);
  fill(conv);
  const at::Tensor x = random_lanes({3, 2, 3, 5, 5}).set_requires_grad(true);
  const at::Tensor out = conv.forward({x});
  const at::Tensor grad = random_lanes(out.sizes()), before = grad.clone();
  torch::autograd::grad({out}, {x}, {grad});
  EXPECT_TRUE(at::equal(grad, before));
}

TEST(LiConv, KeepsStreamsApartButInTheIntegratedPath) {
  LiConv conv({.streams = 3, .in_channels = 4, .filters = 4}, at::kFloat, at::kFloat);
  fill(conv);
  at::Tensor x = lanes::testing::stacked_copy(at::randn({4, 2, 4, 6, 6}), at::kFloat);
  const at::Tensor healthy = conv.forward({x}).detach().clone();
  x[1].fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor sick = conv.forward({x}).detach();
  for (const int64_t stream : {0, 2}) EXPECT_TRUE(at::equal(healthy[stream], sick[stream]));
  EXPECT_TRUE(sick[1].isnan().all().item<bool>());
  EXPECT_TRUE(sick[3].isnan().all().item<bool>());
}

TEST(LiConv, GivesOneStreamAloneWhatItHasAmongAll) {
  LiConv conv({.streams = 3, .in_channels = 4, .filters = 5, .has_bias = true}, at::kDouble, at::kDouble);
  fill(conv);
  const at::Tensor x = random_lanes({4, 2, 4, 6, 6});
  const at::Tensor all = conv.forward({x});
  for (int64_t stream = 0; stream < 3; ++stream)
    EXPECT_LE(largest(conv.forward_stream(stream, x.narrow(0, stream, 1))[0] - all[stream]), 1e-12);
}

TEST(LiConv, MeasuresWhatEveryStreamGives) {
  LiConv conv({.streams = 3, .in_channels = 4, .filters = 5}, at::kDouble, at::kDouble);
  fill(conv);
  const at::Tensor x = random_lanes({4, 2, 4, 6, 7}).set_requires_grad(true);
  const at::Tensor raw = conv.forward({x}), norms = conv.contribution_norms(raw);
  std::vector<at::Tensor> expected;
  for (int64_t i = 0; i < 3; ++i) expected.push_back(at::conv2d(raw[i], conv.mix.value()[i]).norm());
  EXPECT_TRUE(at::allclose(norms, at::stack(expected), 1e-10));
  const auto own = torch::autograd::grad({norms.log().var(false)}, {x, conv.mix.value()}, {}, true);
  const auto theirs = torch::autograd::grad({at::stack(expected).log().var(false)}, {x, conv.mix.value()});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(own[i], theirs[i], 1e-9, 1e-12));
}

TEST(LiConv, NamesWhatItRefuses) {
  const LiConv conv({.streams = 2, .in_channels = 3, .filters = 4}, at::kFloat, at::kFloat);
  EXPECT_ERROR(conv.forward({at::randn({2, 1, 3, 5, 5})}), c10::Error, "x", "[3,B,3,H,W]", "[2, 1, 3, 5, 5]");
  EXPECT_ERROR(LiConv({.streams = 2, .apart = {3}}, at::kFloat, at::kFloat), c10::Error, "apart",
               "2 streams");
}

}  // namespace
}  // namespace espalier::linet
