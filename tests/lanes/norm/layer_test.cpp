#include "espalier/lanes/norm/layer.h"

#include "espalier/lanes/head/pool.h"
#include "tests/lanes/compare.h"
#include "tests/lanes/norm/torch_norm.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#include "tests/support/threads.h"

namespace espalier::lanes {
namespace {

using testing::activated;
using testing::Dice;
using testing::Layer;
using testing::over_valid;
using testing::random_lanes;
using testing::random_mask;
using testing::Tensors;
namespace F = torch::nn::functional;

// Inputs: x, weight, bias, mask, residual.
Layer batch_norm_layer(at::IntArrayRef sizes, Mode mode, Activation activation, const at::Tensor& mask,
                       const at::Tensor& residual = {}) {
  const int64_t lanes = sizes[0], channels = sizes[2];
  const at::Tensor means = random_lanes({lanes, channels}), variances = random_lanes({lanes, channels}).exp();
  return {.stacked =
              [=](const Tensors& in) {
                const auto type = in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
                const LaneBatchNorm2d norm(in[0].size(0), in[0].size(2),
                                           in[0].options().dtype(type).requires_grad(false));
                // Statistics differ by channel and not by lane, so that a lane alone has its own.
                norm.running_mean.copy_(means[0].expand_as(norm.running_mean));
                norm.running_var.copy_(variances[0].expand_as(norm.running_var));
                return lane_batch_norm2d(in[0], in[1], in[2],
                                         {.mode = mode,
                                          .mask = in[3],
                                          .running_mean = norm.running_mean,
                                          .running_var = norm.running_var,
                                          .residual = in[4],
                                          .activation = activation});
              },
          .torch =
              [=](const Tensors& in) {
                at::Tensor y = over_valid(in[0], in[3], [&](const at::Tensor& x) {
                  const auto own = [&](const at::Tensor& all) {
                    return all[0].to(x.device(), x.scalar_type()).clone();
                  };
                  return F::batch_norm(
                      x, own(means), own(variances),
                      F::BatchNormFuncOptions().weight(in[1]).bias(in[2]).training(mode == Mode::kTrain));
                });
                if (in[4].defined())
                  y = y + over_valid(in[4], in[3], [](const at::Tensor& added) { return added; });
                return activated(y, activation);
              },
          .inputs = {random_lanes(sizes) + 0.5, random_lanes({lanes, channels}),
                     random_lanes({lanes, channels}), mask, residual}};
}

void expect_batch_norm_contracts(int64_t most_channels) {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int64_t lanes = dice.roll(1, 5), batch = dice.roll(3, 9);
    const at::Tensor mask = dice.roll(0, 2) > 0 ? random_mask(lanes, batch, 3) : at::Tensor();
    testing::expect_contracts(batch_norm_layer(
        {lanes, batch, dice.roll(0, 1) ? dice.roll(1, 9) : 8 * dice.roll(1, most_channels / 8),
         dice.roll(1, 6), dice.roll(1, 6)},
        dice.roll(0, 2) > 0 ? Mode::kTrain : Mode::kEvaluate,
        dice.roll(0, 1) ? Activation::kRelu : Activation::kNone, mask));
  }
}

void expect_residual_contracts() {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int64_t lanes = dice.roll(1, 4), batch = dice.roll(3, 9);
    const at::Tensor mask = dice.roll(0, 2) > 0 ? random_mask(lanes, batch, 3) : at::Tensor();
    const std::vector<int64_t> sizes{lanes, batch, dice.roll(0, 1) ? dice.roll(1, 9) : 8 * dice.roll(1, 6),
                                     dice.roll(1, 7), dice.roll(1, 7)};
    testing::expect_contracts(batch_norm_layer(sizes, dice.roll(0, 2) > 0 ? Mode::kTrain : Mode::kEvaluate,
                                               dice.roll(0, 2) > 0 ? Activation::kRelu : Activation::kNone,
                                               mask, random_lanes(sizes)));
  }
}

TEST(LaneBatchNorm, AddsAResidualBeforeTheReluAsTorchWould) {
  expect_residual_contracts();
}

TEST(LaneBatchNormCuda, AddsAResidualBeforeTheReluAsTorchWould) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_residual_contracts();
}

TEST(LaneBatchNorm, EqualsTorchLaneByLaneOverRandomShapesAndMasks) {
  expect_batch_norm_contracts(8);
}

TEST(LaneBatchNormCuda, EqualsTorchLaneByLaneOverRandomShapesAndMasks) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_batch_norm_contracts(400);
  // Parts of a lane, and a mean far from zero.
  Layer large = batch_norm_layer({2, 33, 24, 32, 31}, Mode::kTrain, Activation::kRelu, random_mask(2, 33, 3));
  large.inputs[0] = testing::stacked_copy(large.inputs[0] + 30, at::kDouble);
  testing::expect_equals_torch(large, {at::kFloat});
  testing::expect_same_alone(large);
}

// Norm, ReLU and pool as one; inputs as batch_norm_layer's. Rounded narrow values may tie or swap, so the
// winner among a window's values is compared in wide types.
Layer pooled_layer(at::IntArrayRef sizes, Mode mode, Activation activation, const at::Tensor& mask,
                   Pooling pooling) {
  Layer layer = batch_norm_layer(sizes, mode, activation, mask);
  layer.stacked = [=](const Tensors& in) {
    const auto options = in[1].options().requires_grad(false);
    const at::Tensor mean = zero_lanes({in[0].size(0), in[0].size(2)}, options);
    const at::Tensor var = zero_lanes({in[0].size(0), in[0].size(2)}, options);
    mean.fill_(0.25);
    var.fill_(1.5);
    return lane_batch_norm2d(
        in[0], in[1], in[2],
        {.mode = mode,
         .mask = in[3],
         .running_mean = mean.to(in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat),
         .running_var = var.to(in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat),
         .activation = activation,
         .pooling = pooling});
  };
  layer.torch = [=](const Tensors& in) {
    const at::Tensor normed = activated(
        over_valid(in[0], in[3],
                   [&](const at::Tensor& x) {
                     const auto options = x.options().requires_grad(false);
                     return F::batch_norm(
                         x, at::full({x.size(1)}, 0.25, options), at::full({x.size(1)}, 1.5, options),
                         F::BatchNormFuncOptions().weight(in[1]).bias(in[2]).training(mode == Mode::kTrain));
                   }),
        activation);
    return pooling == Pooling::k2x2 ? at::max_pool2d(normed, {2, 2})
                                    : at::max_pool2d(normed, {3, 3}, {2, 2}, {1, 1});
  };
  return layer;
}

void expect_pooled_contracts(Pooling pooling) {
  const int64_t least = pooling == Pooling::k2x2 ? 2 : 1;
  for (uint64_t seed = 0; seed < testing::num_seeds(16); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int64_t lanes = dice.roll(1, 4), batch = dice.roll(3, 9);
    const at::Tensor mask = dice.roll(0, 2) > 0 ? random_mask(lanes, batch, 3) : at::Tensor();
    const Layer layer = pooled_layer({lanes, batch, dice.roll(0, 1) ? dice.roll(1, 9) : 8 * dice.roll(1, 6),
                                      dice.roll(least, 9), dice.roll(least, 9)},
                                     dice.roll(0, 2) > 0 ? Mode::kTrain : Mode::kEvaluate,
                                     dice.roll(0, 1) ? Activation::kRelu : Activation::kNone, mask, pooling);
    testing::expect_equals_torch(layer, {at::kFloat});
    testing::expect_same_alone(layer);
    testing::expect_isolated(layer);
    testing::expect_layout(layer);
  }
}

TEST(LaneBatchNorm, PoolsAsTorchDoesAfterIt) {
  expect_pooled_contracts(Pooling::k2x2);
  expect_pooled_contracts(Pooling::k3x3);
}

TEST(LaneBatchNormCuda, PoolsAsTorchDoesAfterIt) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_pooled_contracts(Pooling::k2x2);
  expect_pooled_contracts(Pooling::k3x3);
}

// Whether a pool is fused is decided by what other lanes have grown in between: a lane must not notice.
void expect_the_same_bits_whoever_pools() {
  const std::vector<std::vector<int64_t>> kSizes{
      {3, 5, 16, 8, 8}, {2, 4, 8, 7, 9}, {1, 3, 5, 6, 4}, {2, 33, 24, 32, 32}, {2, 3, 8, 2, 3}};
  torch::manual_seed(11);
  for (const at::ScalarType type : testing::narrow_types())
    for (const std::vector<int64_t>& sizes : kSizes)
      for (const bool is_masked : {false, true}) {
        SCOPED_TRACE(std::string(c10::toString(type)) + " " + c10::Join("x", sizes));
        const at::Tensor mask = is_masked ? random_mask(sizes[0], sizes[1], 2) : at::Tensor();
        const auto leaf = [](const at::Tensor& values, at::ScalarType of) {
          return testing::stacked_copy(values, of).set_requires_grad(true);
        };
        const at::Tensor x = leaf(random_lanes(sizes), type);
        const at::Tensor weight = leaf(random_lanes({sizes[0], sizes[2]}), at::kFloat);
        const at::Tensor bias = leaf(random_lanes({sizes[0], sizes[2]}), at::kFloat);
        const at::Tensor grad = testing::stacked_copy(
            random_lanes({sizes[0], sizes[1], sizes[2], sizes[3] / 2, sizes[4] / 2}), type);
        const auto run = [&](Pooling pooling) {
          const LaneBatchNorm2d norm(sizes[0], sizes[2], weight.options().requires_grad(false));
          at::Tensor out = lane_batch_norm2d(x, weight, bias,
                                             {.mode = Mode::kTrain,
                                              .mask = mask,
                                              .running_mean = norm.running_mean,
                                              .running_var = norm.running_var,
                                              .activation = Activation::kRelu,
                                              .pooling = pooling});
          if (pooling == Pooling::kNone) out = lane_max_pool2x2(out);
          Tensors results = torch::autograd::grad({out}, {x, weight, bias}, {grad});
          results.insert(results.end(), {out.detach(), norm.running_mean, norm.running_var});
          return results;
        };
        const Tensors fused = run(Pooling::k2x2), apart = run(Pooling::kNone);
        constexpr const char* kNames[] = {"of x", "of weight", "of bias", "out", "mean", "variance"};
        for (size_t i = 0; i < fused.size(); ++i)
          testing::expect_same_bits(fused[i].cpu(), apart[i].cpu(), kNames[i]);
      }
}

TEST(LaneBatchNorm, GivesTheSameBitsWhoeverPools) {
  expect_the_same_bits_whoever_pools();
}

TEST(LaneBatchNormCuda, GivesTheSameBitsWhoeverPools) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_the_same_bits_whoever_pools();
}

// Whoever of the three wants a gradient has the one that it has when all do.
void expect_the_same_gradient_of_one_alone() {
  const Tensors values{random_lanes({2, 3, 8, 6, 4}), random_lanes({2, 8}), random_lanes({2, 8})};
  for (const Pooling pooling : {Pooling::kNone, Pooling::k2x2, Pooling::k3x3}) {
    const auto gradient = [&](size_t of, bool is_alone) {
      Tensors leaves;
      for (size_t i = 0; i < values.size(); ++i)
        leaves.push_back(
            testing::stacked_copy(values[i], at::kFloat).set_requires_grad(!is_alone || i == of));
      const LaneBatchNorm2d norm(2, 8, values[1].options().dtype(at::kFloat));
      const at::Tensor out = lane_batch_norm2d(leaves[0], leaves[1], leaves[2],
                                               {.mode = Mode::kTrain,
                                                .running_mean = norm.running_mean,
                                                .running_var = norm.running_var,
                                                .activation = Activation::kRelu,
                                                .pooling = pooling});
      return torch::autograd::grad({out.square().sum()}, {leaves[of]}).front();
    };
    for (size_t of = 0; of < values.size(); ++of)
      testing::expect_same_bits(gradient(of, true).cpu(), gradient(of, false).cpu(),
                                "gradient " + std::to_string(of));
  }
}

TEST(LaneBatchNorm, HasTheSameGradientOfAnInputThatAloneWantsOne) {
  expect_the_same_gradient_of_one_alone();
}

TEST(LaneBatchNormCuda, HasTheSameGradientOfAnInputThatAloneWantsOne) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_the_same_gradient_of_one_alone();
}

TEST(LaneBatchNorm, GivesALaneTheBitsItHasAloneAtTheSizesOfAHost) {
  testing::expect_same_alone(
      batch_norm_layer({5, 16, 8, 32, 32}, Mode::kTrain, Activation::kRelu, random_mask(5, 16, 2)));
  testing::expect_same_alone(batch_norm_layer({5, 16, 8, 32, 32}, Mode::kTrain, Activation::kRelu, {}));
}

TEST(LaneBatchNorm, GivesTheSameBitsOnAnyNumberOfThreads) {
  torch::manual_seed(13);
  const std::vector<int64_t> sizes{3, 21, 8, 33, 32};
  const at::Tensor x = random_lanes(sizes), grad = random_lanes({3, 21, 8, 16, 16});
  for (const auto type : {at::kFloat, at::kBFloat16})
    espalier::testing::expect_same_bits_on_any_threads([&] {
      const at::Tensor in = testing::stacked_copy(x, type).set_requires_grad(true);
      const LaneBatchNorm2d norm(sizes[0], sizes[2], at::kFloat);
      const at::Tensor out = norm.forward(in, Mode::kTrain, {}, Activation::kRelu, Pooling::k2x2);
      Tensors results = torch::autograd::grad({out}, {in, norm.weight.value(), norm.bias.value()},
                                              {testing::stacked_copy(grad, type)});
      results.insert(results.end(), {out.detach(), norm.running_mean, norm.running_var});
      return results;
    });
}

TEST(LaneBatchNorm, MovesItsRunningStatisticsAsTorchDoes) {
  torch::manual_seed(7);
  const at::Tensor mask = random_mask(3, 8, 2);
  LaneBatchNorm2d norm(3, 5, at::kDouble);
  norm.momentum = 0.3;
  std::vector<torch::nn::BatchNorm2d> modules;
  for (int64_t lane = 0; lane < 3; ++lane) {
    modules.emplace_back(torch::nn::BatchNorm2dOptions(5).momentum(0.3));
    modules.back()->to(at::kDouble);
  }
  for (int step = 0; step < 4; ++step) {
    const at::Tensor x = random_lanes({3, 8, 5, 4, 3});
    norm.forward(x, Mode::kTrain, mask);
    for (int64_t lane = 0; lane < 3; ++lane) {
      torch::nn::BatchNorm2d& module = modules[static_cast<size_t>(lane)];
      module->forward(x[lane].index_select(0, mask[lane].nonzero().flatten()));
      EXPECT_LE(testing::distance(norm.running_mean[lane], module->running_mean), 1e-12);
      EXPECT_LE(testing::distance(norm.running_var[lane], module->running_var), 1e-12);
    }
  }
}

TEST(LaneBatchNorm, LeavesALaneWithoutSamplesAsItWas) {
  at::Tensor mask = at::ones({2, 3}, at::kBool);
  mask[0].fill_(false);
  const LaneBatchNorm2d norm(2, 4, at::kFloat);
  const at::Tensor x = testing::stacked_copy(at::randn({2, 3, 4, 2, 2}), at::kFloat).set_requires_grad(true);
  const at::Tensor out = norm.forward(x, Mode::kTrain, mask);
  EXPECT_EQ(testing::largest(out[0]), 0);
  for (const at::Tensor& grad :
       torch::autograd::grad({out.sum()}, {x, norm.weight.value(), norm.bias.value()}))
    EXPECT_EQ(testing::largest(grad[0]), 0);
  EXPECT_EQ(testing::largest(norm.running_mean[0]), 0);
  EXPECT_TRUE(at::equal(norm.running_var[0], at::ones({4})));
  EXPECT_FALSE(at::equal(norm.running_var[1], at::ones({4})));
}

TEST(LaneBatchNorm, RefusesToTrainOnASingleValueAsTorchDoes) {
  const LaneBatchNorm2d norm(2, 4, at::kDouble);
  const at::Tensor x = random_lanes({2, 1, 4, 1, 1});
  for (const at::Tensor& mask : {at::Tensor(), at::ones({2, 1}, at::kBool)})
    EXPECT_ERROR(norm.forward(x, Mode::kTrain, mask), c10::Error, "x",
                 "Expected more than 1 value per channel when training", "[2, 1, 4, 1, 1]");
  EXPECT_EQ(testing::largest(norm.running_mean), 0);
  EXPECT_NO_THROW(norm.forward(x, Mode::kEvaluate));
  EXPECT_NO_THROW(norm.forward(random_lanes({2, 1, 4, 1, 2}), Mode::kTrain));
  EXPECT_NO_THROW(norm.forward(random_lanes({2, 0, 4, 1, 1}), Mode::kTrain));
}

// Lanes of 1 x 1 pixels: all samples, one, none, two, one.
at::Tensor single_mask() {
  at::Tensor mask = at::zeros({5, 4}, at::kBool);
  mask[0].fill_(true);
  mask[1][2] = true;
  mask[3].slice(0, 1, 3).fill_(true);
  mask[4][0] = true;
  return mask.to(testing::test_device());
}

// Samples that lie apart: two that are close have a variance of next to nothing, and roundings would be all
// that is compared.
at::Tensor spread_lanes(at::IntArrayRef sizes) {
  const at::Tensor lanes = random_lanes(sizes);
  for (int64_t sample = 0; sample < sizes[1]; ++sample)
    lanes.select(1, sample).add_(3.0 * static_cast<double>(sample) - 4.5);
  return lanes;
}

// Inputs as batch_norm_layer's; torch evaluates where one sample is left.
Layer single_layer(int64_t channels, Activation activation, bool has_residual,
                   Pooling pooling = Pooling::kNone) {
  const std::vector<int64_t> sizes{5, 4, channels, 1, 1};
  const at::Tensor means = random_lanes({channels, 1}), variances = random_lanes({channels, 1}).exp();
  return {.stacked =
              [=](const Tensors& in) {
                const auto type = in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
                const LaneBatchNorm2d norm(in[0].size(0), channels,
                                           in[0].options().dtype(type).requires_grad(false));
                norm.running_mean.copy_(means.t().expand_as(norm.running_mean));
                norm.running_var.copy_(variances.t().expand_as(norm.running_var));
                return lane_batch_norm2d(in[0], in[1], in[2],
                                         {.mask = in[3],
                                          .running_mean = norm.running_mean,
                                          .running_var = norm.running_var,
                                          .residual = in[4],
                                          .activation = activation,
                                          .pooling = pooling});
              },
          .torch =
              [=](const Tensors& in) {
                const bool trains = in[3].sum().item<int64_t>() > 1;
                at::Tensor y = over_valid(in[0], in[3], [&](const at::Tensor& x) {
                  const auto own = [&](const at::Tensor& all) {
                    return all.flatten().to(x.device(), x.scalar_type()).clone();
                  };
                  if (x.size(0) == 0) return x * in[1].view({1, -1, 1, 1}) + in[2].view({1, -1, 1, 1});
                  return F::batch_norm(x, own(means), own(variances),
                                       F::BatchNormFuncOptions().weight(in[1]).bias(in[2]).training(trains));
                });
                if (in[4].defined())
                  y = y + over_valid(in[4], in[3], [](const at::Tensor& added) { return added; });
                return activated(y, activation);
              },
          .inputs = {spread_lanes(sizes), random_lanes({5, channels}), random_lanes({5, channels}),
                     single_mask(), has_residual ? random_lanes(sizes) : at::Tensor()}};
}

void expect_running_statistics_for_single_values() {
  torch::manual_seed(21);
  for (const int64_t channels : {1, 5, 8, 16, 40})
    for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
      SCOPED_TRACE(std::to_string(channels) + " channels");
      testing::expect_contracts(single_layer(channels, activation, /*has_residual=*/false));
      testing::expect_contracts(single_layer(channels, activation, /*has_residual=*/true));
      const Layer pooled = single_layer(channels, activation, /*has_residual=*/false, Pooling::k3x3);
      testing::expect_equals_torch(pooled, {at::kFloat});
      testing::expect_same_alone(pooled);
    }
}

TEST(LaneBatchNorm, UsesRunningStatisticsWhereAMaskLeavesASingleValue) {
  expect_running_statistics_for_single_values();
}

TEST(LaneBatchNormCuda, UsesRunningStatisticsWhereAMaskLeavesASingleValue) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_running_statistics_for_single_values();
}

TEST(LaneBatchNorm, HasTheGradientsOfFiniteDifferencesWhereAMaskLeavesASingleValue) {
  torch::manual_seed(22);
  testing::expect_finite_differences(single_layer(3, Activation::kNone, /*has_residual=*/false));
  testing::expect_finite_differences(single_layer(3, Activation::kRelu, /*has_residual=*/true));
}

// Running statistics and counts after two steps.
Tensors after_single_values(at::ScalarType type, MemoryFormat format) {
  torch::manual_seed(23);
  const at::Device device = testing::test_device();
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const LaneBatchNorm2d norm(5, 8, at::TensorOptions(wide).device(device));
  norm.running_mean.fill_(0.25);
  norm.running_var.fill_(1.5);
  BatchNormCall call = norm.call(Mode::kTrain, single_mask());
  call.fallbacks = at::zeros({5}, at::TensorOptions(at::kDouble).device(device));
  const at::Tensor x = empty_lanes({5, 4, 8, 1, 1}, at::TensorOptions(type).device(device), format);
  Tensors outputs;
  for (int step = 0; step < 2; ++step) {
    x.copy_(at::randn(x.sizes(), at::kDouble));
    outputs.push_back(norm.forward(x, call).detach().cpu().clone());
  }
  call.mode = Mode::kEvaluate;
  norm.forward(x, call);
  outputs.insert(outputs.end(), {norm.running_mean.cpu(), norm.running_var.cpu(), call.fallbacks.cpu()});
  return outputs;
}

TEST(LaneBatchNorm, LeavesTheRunningStatisticsOfASingleValueAndCountsIt) {
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    const Tensors after = after_single_values(at::kDouble, format);
    for (const int64_t lane : {1, 2, 4}) {
      EXPECT_TRUE((after[2][lane] == 0.25).all().item<bool>()) << "mean of lane " << lane;
      EXPECT_TRUE((after[3][lane] == 1.5).all().item<bool>()) << "variance of lane " << lane;
    }
    for (const int64_t lane : {0, 3}) EXPECT_FALSE((after[2][lane] == 0.25).any().item<bool>());
    EXPECT_TRUE(at::equal(after[4], at::tensor({0.0, 2.0, 0.0, 0.0, 2.0})));
  }
}

TEST(LaneBatchNormCuda, TreatsSingleValuesAsTheCpuDoes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
    for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-12), std::pair(at::kFloat, 1e-5),
                                          std::pair(at::kBFloat16, 2e-2), std::pair(at::kHalf, 4e-3)}) {
      SCOPED_TRACE(c10::toString(type));
      const Tensors want = after_single_values(type, format);
      const testing::OnCuda cuda;
      const Tensors got = after_single_values(type, format);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LE(testing::distance(got[i], want[i]), tolerance * std::max(1.0, testing::largest(want[i])))
            << "result " << i;
      EXPECT_TRUE(at::equal(got[4], want[4]));
    }
}

TEST(LaneBatchNorm, NeverSeesWhatAMaskedSampleHolds) {
  at::Tensor mask = at::ones({2, 4}, at::kBool);
  mask[1][2] = false;
  const auto results = [&](double filler, Mode mode) {
    torch::manual_seed(3);
    Layer layer = batch_norm_layer({2, 4, 3, 2, 2}, mode, Activation::kRelu, mask);
    layer.inputs[0] = testing::stacked_copy(layer.inputs[0], at::kDouble);
    layer.inputs[0][1][2].fill_(filler);
    at::Tensor grad = random_lanes({2, 4, 3, 2, 2});
    grad[1][2].fill_(filler);
    return testing::run(layer.stacked, testing::leaves(layer.inputs, at::kFloat), grad);
  };
  for (const Mode mode : {Mode::kTrain, Mode::kEvaluate}) {
    const Tensors clean = results(0, mode);
    for (const double filler : {std::numeric_limits<double>::quiet_NaN(), 1e300}) {
      const Tensors dirty = results(filler, mode);
      for (size_t i = 0; i < clean.size(); ++i)
        testing::expect_same_bits(clean[i], dirty[i], "result " + std::to_string(i));
    }
    EXPECT_EQ(testing::largest(clean[0][1][2]), 0);
    EXPECT_EQ(testing::largest(clean[1][1][2]), 0);
  }
}

TEST(LaneBatchNorm, KeepsStatisticsOfOneLaneFromAnother) {
  at::Tensor x = random_lanes({3, 4, 2, 3, 3});
  const LaneBatchNorm2d healthy(3, 2, at::kDouble), sick(3, 2, at::kDouble);
  healthy.forward(x, Mode::kTrain);
  x = x.clone();
  x[1].fill_(std::numeric_limits<double>::quiet_NaN());
  sick.forward(testing::stacked_copy(x, at::kDouble), Mode::kTrain);
  for (const int64_t lane : {0, 2}) {
    testing::expect_same_bits(healthy.running_mean[lane], sick.running_mean[lane], "mean");
    testing::expect_same_bits(healthy.running_var[lane], sick.running_var[lane], "variance");
  }
}

TEST(LaneBatchNorm, HasTheGradientsOfFiniteDifferences) {
  torch::manual_seed(11);
  for (const Mode mode : {Mode::kTrain, Mode::kEvaluate})
    for (const Activation activation : {Activation::kNone, Activation::kRelu})
      testing::expect_finite_differences(
          batch_norm_layer({2, 5, 3, 2, 2}, mode, activation, random_mask(2, 5, 2)));
}

TEST(LaneNorm, NamesTheArgumentThatItRefuses) {
  const LaneBatchNorm2d norm(2, 4, at::kDouble);
  const at::Tensor x = random_lanes({2, 3, 4, 5, 5});
  EXPECT_ERROR(norm.forward(random_lanes({2, 3, 5, 5, 5}), Mode::kTrain), c10::Error, "x", "[2,B,4,H,W]");
  EXPECT_ERROR(norm.forward(x.transpose(3, 4), Mode::kTrain), c10::Error, "x", "channels-last");
  EXPECT_ERROR(norm.forward(x, Mode::kTrain, at::ones({2, 4}, at::kBool)), c10::Error, "mask", "[2, 3]");
  EXPECT_ERROR(norm.forward(x, Mode::kTrain, at::ones({2, 3})), c10::Error, "mask", "bool", "Float");
  BatchNormCall call = norm.call(Mode::kTrain, {});
  call.fallbacks = at::zeros({3}, at::kDouble);
  EXPECT_ERROR(norm.forward(x, call), c10::Error, "fallbacks", "[L]", "[3]");
  call.fallbacks = at::zeros({2}, at::kFloat);
  EXPECT_ERROR(norm.forward(x, call), c10::Error, "fallbacks", "Double", "Float");
  EXPECT_ERROR(LaneGroupNorm(2, 3, 4, at::kFloat), c10::Error, "groups", "4 channels", "3");
}

}  // namespace
}  // namespace espalier::lanes
