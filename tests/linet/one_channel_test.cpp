// Networks whose streams have one channel, given in every layout that a tensor may have: outputs, all
// gradients and statistics are those of plain torch, in both memory formats.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/lanes/optim/gradients.h"
#include "espalier/linet/conv.h"
#include "espalier/linet/network.h"
#include "tests/lanes/layouts.h"
#include "tests/linet/plain_linet.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::linet {
namespace {

using lanes::testing::every_layout;
using lanes::testing::Laid;
using testing::PlainLinet;

double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.to(at::kDouble).abs().max().item<double>();
}

void expect_close(const at::Tensor& got, const at::Tensor& want, at::ScalarType type,
                  const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  EXPECT_LE(largest(got.to(at::kDouble) - want),
            (type == at::kDouble ? 1e-9 : 2e-3) * std::max(1.0, largest(want)))
      << what;
}

struct Case {
  std::vector<int64_t> channels;
  int64_t batch = 4;
  int64_t size = 12;
  std::vector<int64_t> widths = {4, 6};
  at::Tensor keep = {};
};

LinetShape shape_of(const Case& made, MemoryFormat format) {
  return {.in_channels = made.channels,
          .stages = std::vector<int64_t>(made.widths.size(), 1),
          .widths = made.widths,
          .num_classes = 3,
          .memory_format = format,
          .seed = 5};
}

// One-channel streams in first and in other places, alone, and beside each other; one filter per layer; one
// sample; images of one pixel; blanked samples.
std::vector<Case> cases() {
  at::Tensor keep = at::ones({2, 4}, at::kBool);
  keep[0][1] = false;
  keep[1][2] = false;
  return {{.channels = {1}},
          {.channels = {1, 3}},
          {.channels = {3, 1}},
          {.channels = {1, 2, 1}},
          {.channels = {1, 1}, .widths = {1, 1}},
          {.channels = {1, 3}, .batch = 1, .size = 20},
          {.channels = {1, 3}, .size = 1},
          {.channels = {1, 3}, .keep = keep},
          {.channels = {3, 1}, .keep = keep}};
}

// Logits, features, gradients of inputs and parameters, and running statistics, of a step on x in every
// layout.
void expect_plain(const Case& made, at::ScalarType type, MemoryFormat format, at::Device device = at::kCPU) {
  const lanes::testing::NoWarnings quiet;
  torch::manual_seed(11);
  const auto streams = made.channels.size();
  std::vector<at::Tensor> values;
  for (const int64_t channels : made.channels)
    values.push_back(at::randn({1, made.batch, channels, made.size, made.size}, at::kDouble).to(type));
  const at::Tensor weights = at::randn({made.batch, 3}, at::kDouble),
                   stream_weights = at::randn(
                       {static_cast<int64_t>(streams) + 1, made.batch, made.widths.back()}, at::kDouble);
  const size_t ways = every_layout(values[0]).size();
  for (size_t way = 0; way < ways; ++way) {
    Linet net(shape_of(made, format), at::TensorOptions(type).device(device), type);
    PlainLinet plain(net);
    for (auto& [name, value] : plain.values)
      value = value.cpu().detach().set_requires_grad(value.requires_grad());
    plain.keep = made.keep;
    std::vector<at::Tensor> own, theirs;
    std::string names;
    for (size_t i = 0; i < streams; ++i) {
      const Laid laid = every_layout(values[i].to(device))[way];
      names = laid.name;
      own.push_back(laid.tensor.detach().set_requires_grad(true));
      theirs.push_back(values[i][0].to(at::kDouble).set_requires_grad(true));
    }
    SCOPED_TRACE(fmt::format("channels {}, {} of {}x{}, {} in {}", c10::Join(",", made.channels), made.batch,
                             made.size, made.size, names, lanes::testing::name_of(format)));
    LinetContext context;
    if (made.keep.defined()) context.keep = made.keep.to(device);
    const LinetOutput out = net.forward(own, context);
    const at::Tensor loss = (out.logits[0] * weights.to(device, type)).sum() +
                            (out.features * stream_weights.to(device, type)).sum();
    const auto own_grads = torch::autograd::grad({loss}, own, {}, /*retain_graph=*/true);
    lanes::lane_backward(loss.unsqueeze(0), lanes::without_names(net.parameters()));

    const std::vector<at::Tensor> features = plain.features(theirs);
    const at::Tensor logits = plain.logits(features);
    ((logits * weights).sum() + (at::stack(features) * stream_weights).sum()).backward();
    expect_close(out.logits[0].cpu(), logits, type, "logits");
    expect_close(out.features.cpu(), at::stack(features), type, "features");
    for (size_t i = 0; i < streams; ++i)
      expect_close(own_grads[i][0].cpu(), theirs[i].grad(), type, "gradient of stream " + std::to_string(i));
    for (const StreamTensor& tensor : net.stream_tensors()) {
      if (tensor.name.ends_with("num_batches_tracked")) continue;
      expect_close((tensor.parameter ? tensor.gradient() : tensor.value()).cpu(),
                   tensor.parameter ? plain[tensor.name].grad() : plain[tensor.name], type, tensor.name);
    }
  }
}

TEST(LinetOneChannel, EqualsPlainTorchInEveryLayout) {
  for (const Case& made : cases())
    for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
      for (const auto type : {at::kDouble, at::kFloat}) expect_plain(made, type, format);
}

TEST(LinetOneChannelCuda, EqualsPlainTorchInEveryLayout) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const Case& made : cases())
    for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
      expect_plain(made, at::kDouble, format, at::Device(at::kCUDA, 0));
}

TEST(LinetOneChannel, RunsAStreamAloneInEveryLayout) {
  const lanes::testing::NoWarnings quiet;
  for (const Case& made : cases())
    for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
      for (const auto mode : {lanes::Mode::kTrain, lanes::Mode::kEvaluate})
        for (size_t stream = 0; stream < made.channels.size(); ++stream) {
          torch::manual_seed(12);
          const at::Tensor values =
              at::randn({1, made.batch, made.channels[stream], made.size, made.size}, at::kDouble);
          Linet net(shape_of(made, format), at::kDouble, at::kDouble);
          PlainLinet plain(net);
          plain.trains = mode == lanes::Mode::kTrain;
          std::vector<at::Tensor> all;
          for (size_t i = 0; i < made.channels.size(); ++i)
            all.push_back(i == stream
                              ? values[0]
                              : at::randn({made.batch, made.channels[i], made.size, made.size}, at::kDouble));
          const at::Tensor want = plain.features(all)[stream];
          for (const Laid& laid : every_layout(values)) {
            SCOPED_TRACE(laid.name + " in " + lanes::testing::name_of(format));
            expect_close(net.forward_stream(static_cast<int64_t>(stream), laid.tensor, mode)[0], want,
                         at::kDouble, "features");
          }
        }
}

// The layer itself, which C++ may be given foreign tensors: filters decide.
TEST(LinetOneChannel, LayersTakeTheFormatOfTheirFilters) {
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    LiConv conv({.streams = 2, .apart = {1, 3}, .filters = 4, .kernel_size = 3}, at::kDouble, at::kDouble);
    for (lanes::LaneParameter& weight : conv.weight) weight.set_format(format);
    conv.mix.set_format(format);
    const at::Tensor second = lanes::testing::laid_in(at::randn({1, 2, 3, 5, 5}, at::kDouble), format);
    for (const Laid& first : lanes::testing::dense_layouts(at::randn({1, 2, 1, 5, 5}, at::kDouble))) {
      const at::Tensor out = conv.forward({first.tensor, second});
      EXPECT_EQ(out.strides(), lanes::empty_lanes(out.sizes(), out.options(), format).strides())
          << first.name;
    }
    const at::Tensor foreign =
        lanes::testing::laid_in(second, format == MemoryFormat::kChannelsLast ? MemoryFormat::kContiguous
                                                                              : MemoryFormat::kChannelsLast);
    EXPECT_ERROR(conv.forward({at::randn({1, 2, 1, 5, 5}, at::kDouble), foreign}), c10::Error, "LiConv", "x",
                 "memory format");
  }
}

TEST(LinetOneChannel, LayersOfSinglePixelsTakeTheFormatOfTheirMix) {
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    LiConv conv({.streams = 1, .apart = {1}, .filters = 4, .kernel_size = 1}, at::kDouble, at::kDouble);
    conv.weight[0].set_format(format);
    conv.mix.set_format(format);
    for (const Laid& x : lanes::testing::dense_layouts(at::randn({1, 2, 1, 5, 5}, at::kDouble))) {
      const at::Tensor out = conv.forward({x.tensor});
      EXPECT_EQ(out.strides(), lanes::empty_lanes(out.sizes(), out.options(), format).strides()) << x.name;
    }
  }
}

// A gradient that all lanes share comes as one in memory: nothing may be added to it there.
TEST(LinetOneChannel, LayersTakeAGradientWhoseLanesShareMemory) {
  for (const int64_t size : {1, 5}) {
    LiConv conv({.streams = 2, .apart = {1, 1}, .filters = 1, .kernel_size = 3}, at::kDouble, at::kDouble);
    for (lanes::LaneParameter* parameter : {&conv.weight[0], &conv.weight[1], &conv.mix})
      parameter->storage().copy_(at::randn(parameter->storage().sizes(), at::kDouble));
    std::vector<at::Tensor> x;
    for (int i = 0; i < 2; ++i)
      x.push_back(at::randn({1, 1, 1, size, size}, at::kDouble).set_requires_grad(true));
    const auto filters = [&](size_t i) { return conv.weight[i].value()[0]; };
    const at::Tensor first = at::conv2d(x[0][0], filters(0), {}, 1, 1),
                     second = at::conv2d(x[1][0], filters(1), {}, 1, 1);
    const at::Tensor z = at::conv2d(first, conv.mix.value()[0]) + at::conv2d(second, conv.mix.value()[1]);
    const torch::autograd::variable_list wanted{x[0], x[1], conv.weight[0].value(), conv.weight[1].value(),
                                                conv.mix.value()};
    const at::Tensor shared = at::randn({size * size}, at::kDouble);
    const auto want = torch::autograd::grad({first + second + z}, wanted, {shared.view({1, 1, size, size})});
    const at::Tensor out = conv.forward(x);
    // A hook's result is held by nobody else, as are the gradients of torch's own ops.
    out.register_hook([&](const at::Tensor& grad) {
      return shared.clone().as_strided_(grad.sizes(), {0, size * size, 1, size, 1});
    });
    const auto got = torch::autograd::grad({out}, wanted, {at::ones_like(out)});
    for (size_t i = 0; i < want.size(); ++i)
      expect_close(got[i], want[i], at::kDouble, "gradient " + std::to_string(i));
  }
}

TEST(Linet, TrainsOnTheRunningStatisticsOfAStreamWithASingleSampleLeft) {
  // 7 x 7 pixels are 2 x 2 in the first stage, 1 x 1 in the second.
  at::Tensor keep = at::ones({2, 4}, at::kBool);
  keep[1].slice(0, 1).fill_(false);
  const Case made{.channels = {3, 1}, .size = 7, .keep = keep};
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    expect_plain(made, at::kDouble, format);
    Linet net(shape_of(made, format), at::kDouble, at::kDouble);
    PlainLinet plain(net);
    plain.keep = keep;
    const at::Tensor fallbacks = at::zeros({3}, at::kDouble);
    const std::vector<at::Tensor> x{at::randn({1, 4, 3, 7, 7}, at::kDouble),
                                    at::randn({1, 4, 1, 7, 7}, at::kDouble)};
    net.forward(x, {.keep = keep, .fallbacks = fallbacks});
    plain.features({x[0][0], x[1][0]});
    EXPECT_GT(plain.num_fallbacks, 0);
    EXPECT_TRUE(at::equal(fallbacks, at::tensor({0.0, static_cast<double>(plain.num_fallbacks), 0.0})));
  }
}

TEST(Linet, RefusesATrainingBatchThatLeavesANormASingleValue) {
  const LinetShape shape = linet_preset("li_resnet18", 0.0625);  // 32 x 32 pixels are 1 x 1 in its last stage
  EXPECT_ERROR(Linet::check_training(shape, 1, 32, 32, "--batch"), UsageError, "--batch 1", "stage 4",
               "single value per channel", "1 x 1", "at least 2");
  EXPECT_NO_THROW(Linet::check_training(shape, 2, 32, 32, "--batch"));
  EXPECT_NO_THROW(Linet::check_training(shape, 1, 33, 32, "--batch"));
  Linet net(shape, at::kFloat, at::kFloat);
  EXPECT_ERROR(net.forward({at::randn({1, 1, 3, 32, 32})}), c10::Error,
               "Expected more than 1 value per channel when training");
  EXPECT_NO_THROW(net.forward({at::randn({1, 1, 3, 33, 32})}));
  EXPECT_NO_THROW(net.forward({at::randn({1, 1, 3, 32, 32})}, {.mode = lanes::Mode::kEvaluate}));
}

}  // namespace
}  // namespace espalier::linet
