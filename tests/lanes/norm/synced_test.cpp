#include "espalier/lanes/norm/synced.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/lanes/stack.h"
#include "tests/support/thread_ranks.h"

namespace espalier::lanes {
namespace {

constexpr int64_t kLanes = 4, kBatch = 6, kChannels = 3;

struct Result {
  at::Tensor out, grad_x, grad_weight, grad_bias, grad_residual, running_mean, running_var, fallbacks;
};

struct Inputs {
  at::Tensor x, weight, bias, residual, mask, running_mean, running_var, towards;
};

Inputs random_inputs(int64_t height, int64_t width) {
  torch::manual_seed(3);
  const auto options = at::TensorOptions(at::kDouble);
  const auto stacked = [&] {
    const at::Tensor made = empty_lanes({kLanes, kBatch, kChannels, height, width}, options);
    made.copy_(at::randn(made.sizes(), options) * 2 + 3);
    return made;
  };
  const at::Tensor x = stacked(), residual = stacked();
  return {.x = x,
          .weight = at::randn({kLanes, kChannels}, options),
          .bias = at::randn({kLanes, kChannels}, options),
          .residual = residual,
          .running_mean = at::randn({kLanes, kChannels}, options),
          .running_var = at::rand({kLanes, kChannels}, options) + 0.5,
          .towards = at::randn(x.sizes(), options)};
}

// All samples, some, one, and none of a lane's.
at::Tensor some_mask() {
  const at::Tensor mask = at::ones({kLanes, kBatch}, at::kBool);
  mask[1][0] = false;
  mask[1][4] = false;
  mask[2].fill_(false);
  mask[2][5] = true;
  mask[3].fill_(false);
  return mask;
}

// Samples [begin, end), by `norm`.
template <class Norm>
Result part_of(const Inputs& inputs, int64_t begin, int64_t end, const Norm& norm) {
  const auto leaf = [](const at::Tensor& values) { return values.clone().detach().requires_grad_(true); };
  const auto samples = [&](const at::Tensor& values) {
    const at::Tensor own =
        empty_lanes({kLanes, end - begin, kChannels, values.size(3), values.size(4)}, values.options());
    own.copy_(values.narrow(1, begin, end - begin));
    return own.requires_grad_(true);
  };
  const at::Tensor x = samples(inputs.x), residual = samples(inputs.residual), weight = leaf(inputs.weight),
                   bias = leaf(inputs.bias);
  BatchNormCall call{.running_mean = inputs.running_mean.clone(),
                     .running_var = inputs.running_var.clone(),
                     .residual = residual,
                     .fallbacks = at::zeros({kLanes}, at::kDouble),
                     .activation = Activation::kRelu};
  if (inputs.mask.defined())
    call.mask = inputs.mask.narrow(1, begin, end - begin).clone(at::MemoryFormat::Contiguous);
  const at::Tensor out = norm(x, weight, bias, call);
  const auto grads = torch::autograd::grad({(out * inputs.towards.narrow(1, begin, end - begin)).sum()},
                                           {x, weight, bias, residual});
  return {out.detach(), grads[0],          grads[1],         grads[2],
          grads[3],     call.running_mean, call.running_var, call.fallbacks};
}

void expect_near(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const double largest = std::max(expected.abs().max().item<double>(), 1.0);
  EXPECT_LE((actual - expected).abs().max().item<double>(), 1e-12 * largest) << what;
}

void expect_parts_of_the_whole(const Inputs& inputs) {
  const Result whole = part_of(inputs, 0, kBatch, lane_batch_norm2d);
  const std::vector<int64_t> bounds{0, 1, 4, kBatch};  // unequal parts
  std::vector<Result> parts(3);
  testing::as_ranks(3, [&](ranks::World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    parts[rank] = part_of(inputs, bounds[rank], bounds[rank + 1],
                          [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const BatchNormCall& call) {
                            return synced_batch_norm2d(x, weight, bias, call,
                                                       [&](const at::Tensor& values) { world.sum_(values); });
                          });
  });
  const auto together = [&](at::Tensor Result::*member) {
    return at::cat({parts[0].*member, parts[1].*member, parts[2].*member}, 1);
  };
  expect_near(together(&Result::out), whole.out, "out");
  expect_near(together(&Result::grad_x), whole.grad_x, "grad_x");
  expect_near(together(&Result::grad_residual), whole.grad_residual, "grad_residual");
  expect_near(parts[0].grad_weight + parts[1].grad_weight + parts[2].grad_weight, whole.grad_weight,
              "weight");
  expect_near(parts[0].grad_bias + parts[1].grad_bias + parts[2].grad_bias, whole.grad_bias, "bias");
  for (const Result& part : parts) {
    expect_near(part.running_mean, whole.running_mean, "running_mean");
    expect_near(part.running_var, whole.running_var, "running_var");
    EXPECT_TRUE(at::equal(part.fallbacks, whole.fallbacks));
  }
}

TEST(SyncedBatchNorm, IsThatOfTheWholeBatchWhereverItsPartsAre) {
  expect_parts_of_the_whole(random_inputs(4, 3));
}

TEST(SyncedBatchNorm, LeavesOutMaskedSamplesOfAllProcesses) {
  Inputs inputs = random_inputs(4, 3);
  inputs.mask = some_mask();
  inputs.x.masked_fill_(inputs.mask.logical_not().view({kLanes, kBatch, 1, 1, 1}),
                        std::numeric_limits<double>::quiet_NaN());
  expect_parts_of_the_whole(inputs);
}

TEST(SyncedBatchNorm, UsesRunningStatisticsWhereOneValueIsLeftInAllProcesses) {
  Inputs inputs = random_inputs(1, 1);
  inputs.mask = some_mask();
  expect_parts_of_the_whole(inputs);
  EXPECT_TRUE(at::equal(part_of(inputs, 0, kBatch, lane_batch_norm2d).fallbacks,
                        at::tensor({0.0, 0.0, 1.0, 0.0}, at::kDouble)));
}

TEST(SummedOverAll, HasTheGradientOfAllLossesTogether) {
  testing::as_ranks(2, [&](ranks::World& world) {
    const double own = world.leads() ? 2 : 3;
    const at::Tensor x = at::full({1}, own, at::kDouble).requires_grad_(true);
    const at::Tensor sum = summed_over_all(x, [&](const at::Tensor& values) { world.sum_(values); });
    EXPECT_EQ(sum.item<double>(), 5);
    // Losses sum^2 and 10 sum.
    const at::Tensor loss = world.leads() ? sum * sum : 10 * sum;
    EXPECT_EQ(torch::autograd::grad({loss.sum()}, {x})[0].item<double>(), 2 * 5 + 10);
  });
}

}  // namespace
}  // namespace espalier::lanes
