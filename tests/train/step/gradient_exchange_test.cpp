#include "espalier/train/step/gradient_exchange.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/lanes/optim/gradients.h"
#include "tests/support/thread_ranks.h"

namespace espalier::train {
namespace {

using espalier::testing::as_ranks;

// Parameters of 3 MB and one value: three buckets, if the one value is not in the way.
constexpr int64_t kLarge = 750'000;

TEST(GradientExchange, SendsBucketsWhileTheBackwardPassGoesOn) {
  as_ranks(2, [](ranks::World& world) {
    std::vector<lanes::LaneParameter> parameters;
    for (const int64_t size : {kLarge, kLarge, int64_t{1}, kLarge, kLarge})
      parameters.emplace_back(at::IntArrayRef({1, size}), at::TensorOptions(at::kFloat), at::kFloat);
    lanes::LaneParameter unused({1, 7}, at::TensorOptions(at::kFloat), at::kFloat);
    std::vector<lanes::LaneParameter*> all;
    for (lanes::LaneParameter& parameter : parameters) all.push_back(&parameter);
    all.push_back(&unused);
    GradientExchange exchange(world, all);
    const at::Tensor statistic = at::full({3}, world.leads() ? 1.0 : 10.0, at::kDouble);
    exchange.add(statistic, statistic);
    // Every value of parameter i has the gradient (i + 1) r, twice: in two uses.
    at::Tensor loss = at::zeros({1});
    const auto rank = static_cast<double>(world.rank() + 1);
    for (size_t i = 0; i < parameters.size(); ++i)
      for (int use = 0; use < 2; ++use)
        loss = loss + parameters[i].value().sum() * (static_cast<double>(i + 1) * rank);
    lanes::lane_backward(loss, all);
    EXPECT_GE(world.bytes_moved(), 2 * kLarge * 4) << "nothing was sent before the pass was over";
    exchange.finish();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].gradient();
      EXPECT_TRUE(at::equal(gradient, at::full_like(gradient, 2.0 * static_cast<double>(i + 1) * 3))) << i;
    }
    EXPECT_TRUE(at::equal(unused.gradient(), at::zeros_like(unused.gradient())));
    EXPECT_TRUE(at::equal(statistic, at::full({3}, 11.0, at::kDouble)));

    // The next step begins anew.
    lanes::lane_backward((parameters[2].value() * rank).sum().view({1}), {&parameters[2]});
    exchange.finish();
    EXPECT_EQ(parameters[2].gradient().item<float>(), 3);
  });
}

// The gradients of a host of train host, last layer first, are some 400 KB.
TEST(GradientExchange, SendsHalfOfASmallNetworkWhileTheBackwardPassGoesOn) {
  as_ranks(2, [](ranks::World& world) {
    lanes::LaneParameter first({1, 1'000}, at::TensorOptions(at::kFloat), at::kFloat);
    lanes::LaneParameter last({1, 9'000}, at::TensorOptions(at::kFloat), at::kFloat);
    GradientExchange exchange(world, {&first, &last});
    int64_t moved_before_first = -1;
    const unsigned hook = first.value().register_hook(
        [&](const at::Tensor& /*gradient*/) { moved_before_first = world.bytes_moved(); });
    // `last` is used last: its gradient is the first that a backward pass makes.
    const at::Tensor hidden = first.value().sum().sin();
    lanes::lane_backward((hidden * last.value().sum()).view({1}), {&first, &last});
    first.value().remove_hook(hook);
    EXPECT_EQ(moved_before_first, 2 * 9'000 * 4);
    exchange.finish();
    EXPECT_EQ(world.bytes_moved(), 2 * 10'000 * 4);
  });
}

TEST(GradientExchange, TakesNothingAlongOnceItIsGone) {
  as_ranks(2, [](ranks::World& world) {
    // Larger than a bucket, which would leave at once.
    lanes::LaneParameter parameter({1, 2 * kLarge}, at::TensorOptions(at::kFloat), at::kFloat);
    { const GradientExchange exchange(world, {&parameter}); }
    const int64_t before = world.bytes_moved();
    lanes::lane_backward(parameter.value().sum().view({1}), {&parameter});
    EXPECT_EQ(world.bytes_moved(), before);
    EXPECT_TRUE(at::equal(parameter.gradient(), at::ones({1, 2 * kLarge})));
  });
}

}  // namespace
}  // namespace espalier::train
