#include "espalier/linet/network.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <set>

#include "espalier/core/error.h"
#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/optim/gradients.h"
#include "espalier/lanes/optim/optimizer.h"
#include "espalier/lanes/stack.h"
#include "tests/support/message.h"

namespace espalier::linet {
namespace {

LinetShape small_shape(std::vector<int64_t> channels = {3, 1, 1}) {
  return {
      .in_channels = std::move(channels), .stages = {1, 1}, .widths = {8, 16}, .num_classes = 4, .seed = 5};
}

std::vector<at::Tensor> inputs(const LinetShape& shape, int64_t batch = 6, int64_t size = 20) {
  std::vector<at::Tensor> all;
  for (const int64_t channels : shape.in_channels) {
    const at::Tensor x = lanes::empty_lanes({1, batch, channels, size, size}, at::TensorOptions(at::kFloat));
    all.push_back(x.copy_(at::randn(x.sizes())));
  }
  return all;
}

at::Tensor buffer_of(Linet& net, const std::string& name) {
  for (const StreamTensor& tensor : net.stream_tensors())
    if (tensor.name == name) return tensor.value().clone();
  throw std::runtime_error(name);
}

TEST(LinetShape, HasTheStagesOfTheResidualNetworks) {
  const LinetShape wide = linet_preset("li_resnet18", 0.75), deep = linet_preset("li_resnet152", 1);
  EXPECT_EQ(wide.widths, (std::vector<int64_t>{48, 96, 192, 384}));
  EXPECT_EQ(wide.num_features(), 384);
  EXPECT_EQ(deep.stages, (std::vector<int64_t>{3, 8, 36, 3}));
  EXPECT_EQ(deep.num_features(), 2048);
  EXPECT_EQ(linet_presets().size(), 5u);
  EXPECT_ERROR(linet_preset("resnet18", 1), UsageError, "resnet18", "li_resnet18", "li_resnet152");
}

TEST(LinetShape, TruncatesWidthsAsTheOriginalDoesOrRoundsThem) {
  using Widths = std::vector<int64_t>;
  const auto widths = [](double factor, LinetRules rules) {
    return linet_preset("li_resnet18", factor, rules).widths;
  };
  EXPECT_EQ(widths(0.7, LinetRules::kOriginal), (Widths{44, 89, 179, 358}));
  EXPECT_EQ(widths(0.7, LinetRules::kEspalier), (Widths{45, 90, 179, 358}));
  for (double factor = 0.02; factor < 2; factor += 0.01) {
    const Widths truncated = widths(factor, LinetRules::kOriginal),
                 rounded = widths(factor, LinetRules::kEspalier);
    for (size_t stage = 0; stage < 4; ++stage) {
      const double exact = std::ldexp(64, static_cast<int>(stage)) * factor;
      EXPECT_EQ(truncated[stage], std::floor(exact)) << factor;
      EXPECT_EQ(rounded[stage], std::round(exact)) << factor;
    }
  }
  EXPECT_EQ(linet_preset("li_resnet50", 0.7).widths, widths(0.7, LinetRules::kOriginal));  // the default
  EXPECT_ERROR(widths(0.01, LinetRules::kOriginal), UsageError, "width 0.01", "no channel", "0.015625");
  EXPECT_EQ(widths(0.01, LinetRules::kEspalier), (Widths{1, 1, 3, 5}));
}

TEST(LinetShape, RefusesWhatCannotBeBuilt) {
  LinetShape shape = small_shape({});
  EXPECT_ERROR(check_shape(shape), UsageError, "streams", "at least one");
  shape = small_shape();
  shape.widths.pop_back();
  EXPECT_ERROR(check_shape(shape), UsageError, "stages", "[1, 1]", "[8]");
}

TEST(Linet, BuildsEveryPresetForAnyNumberOfStreams) {
  for (const std::string_view name : linet_presets())
    for (const int64_t streams : {1, 4}) {
      LinetShape shape = linet_preset(name, 0.03125);
      shape.in_channels.assign(static_cast<size_t>(streams), 1);
      Linet net(shape, at::kFloat, at::kFloat);
      const c10::NoGradGuard no_grad;
      const LinetOutput out = net.forward(inputs(shape, 2, 32), {.mode = lanes::Mode::kEvaluate});
      EXPECT_EQ(out.logits.sizes(), (std::vector<int64_t>{1, 2, 10}));
      EXPECT_EQ(out.features.sizes(), (std::vector<int64_t>{streams + 1, 2, shape.num_features()}));
    }
}

// He et al. give 11.7 million for a ResNet-18 with 1000 classes; torchvision counts 11,689,512. One stream
// and the integrated path have that with the stem and norms twice, and the mixing weights.
TEST(Linet, HasAResnetsParametersInEveryStream) {
  LinetShape shape = linet_preset("li_resnet18", 1);
  shape.num_classes = 1000;
  Linet net(shape, at::kFloat, at::kFloat);
  int64_t stream_values = 0;
  for (const StreamTensor& tensor : net.stream_tensors())
    if (tensor.parameter &&
        (tensor.name.find("streams.0.") != std::string::npos || tensor.name.starts_with("fc.")))
      stream_values += tensor.value().numel();
  EXPECT_EQ(stream_values, 11689512);
}

TEST(Linet, BeginsWithTheValuesThatTheFormulasGive) {
  Linet net(small_shape(), at::kDouble, at::kDouble);
  for (const StreamTensor& tensor : net.stream_tensors()) {
    const at::Tensor value = tensor.value();
    if (tensor.name.find(".mix.") != std::string::npos) {
      EXPECT_TRUE((value == 1.0 / 3).all().item<bool>()) << tensor.name;
    } else if (tensor.name.find(".streams.") != std::string::npos && value.dim() == 4) {
      const double bound = 1 / std::sqrt(static_cast<double>(value[0].numel()));
      EXPECT_LE(value.abs().max().item<double>(), bound) << tensor.name;
      EXPECT_GE(value.abs().max().item<double>(), 0.8 * bound) << tensor.name;
    } else if (tensor.name.ends_with(".previous.weight")) {
      const at::Tensor matrix = value.flatten(1);
      if (matrix.size(0) == matrix.size(1)) {
        EXPECT_TRUE(at::allclose(at::mm(matrix, matrix.t()), at::eye(matrix.size(0), at::kDouble)))
            << tensor.name;
      } else {
        EXPECT_LE(value.abs().max().item<double>(), 0.1 / std::sqrt(static_cast<double>(matrix.size(1))));
      }
    }
  }
  Linet again(small_shape(), at::kDouble, at::kDouble);
  const auto first = net.stream_tensors(), second = again.stream_tensors();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i].value(), second[i].value()));
}

TEST(Linet, CountsItsTrainingBatchesOnce) {
  const LinetShape shape = small_shape();
  Linet net(shape, at::kFloat, at::kFloat);
  const auto x = inputs(shape);
  net.forward(x);
  net.forward(x);
  net.forward(x, {.mode = lanes::Mode::kEvaluate});
  EXPECT_EQ(buffer_of(net, "layer1.0.bn1.integrated.num_batches_tracked").item<int64_t>(), 2);
}

TEST(Linet, KeepsABlankedStreamZeroAndOutOfTheStatistics) {
  const LinetShape shape = small_shape();
  Linet net(shape, at::kFloat, at::kFloat), other(shape, at::kFloat, at::kFloat);
  auto x = inputs(shape);
  at::Tensor keep = at::ones({3, 6}, at::kBool);
  keep[0].slice(0, 0, 2).fill_(false);
  keep[1].fill_(false);
  const at::Tensor features = net.forward(x, {.keep = keep}).features;
  EXPECT_EQ(features[0].slice(0, 0, 2).abs().max().item<float>(), 0);
  EXPECT_EQ(features[1].abs().max().item<float>(), 0);
  EXPECT_GT(features[0].slice(0, 2).abs().max().item<float>(), 0);
  // A wholly blanked stream keeps its statistics; whatever a blanked sample holds is never seen.
  EXPECT_EQ(buffer_of(net, "bn1.streams.1.running_mean").abs().max().item<float>(), 0);
  x[0][0].slice(0, 0, 2).fill_(std::numeric_limits<float>::quiet_NaN());
  x[1].fill_(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(at::equal(other.forward(x, {.keep = keep}).features, features));
}

TEST(Linet, RunsOneStreamAloneAndLeavesTheOthersAsTheyAre) {
  const LinetShape shape = small_shape();
  Linet net(shape, at::kDouble, at::kDouble);
  const auto x = inputs(shape);
  const at::Tensor all = net.forward(x, {.mode = lanes::Mode::kEvaluate}).features;
  for (int64_t stream = 0; stream < 3; ++stream)
    EXPECT_TRUE(
        at::allclose(net.forward_stream(stream, x[static_cast<size_t>(stream)], lanes::Mode::kEvaluate)[0],
                     all[stream], 1e-9));

  std::vector<at::Tensor> before;
  for (const StreamTensor& tensor : net.stream_tensors()) before.push_back(tensor.value().clone());
  net.forward_stream(1, x[1], lanes::Mode::kTrain);
  const auto after = net.stream_tensors();
  for (size_t i = 0; i < after.size(); ++i) {
    const bool is_own = !after[i].parameter && after[i].name.find(".streams.1.running") != std::string::npos;
    EXPECT_EQ(at::equal(before[i], after[i].value()), !is_own) << after[i].name;
  }
  EXPECT_ERROR(net.forward_stream(3, x[0], lanes::Mode::kTrain), UsageError, "stream", "0 to 2", "3");
}

TEST(Linet, TellsWhatStreamsGiveInEveryLayerOrInOneStage) {
  const LinetShape shape = small_shape();
  Linet net(shape, at::kFloat, at::kFloat);
  const auto count = [&](const std::string& layers) {
    std::vector<at::Tensor> contributions;
    net.forward(inputs(shape), {.contributions = &contributions, .contributions_of = layers});
    for (const at::Tensor& norms : contributions) EXPECT_EQ(norms.sizes(), (std::vector<int64_t>{3}));
    return contributions.size();
  };
  EXPECT_EQ(count(""), 6u);  // the stem, two layers per block, one projection
  EXPECT_EQ(count("conv1"), 1u);
  EXPECT_EQ(count("layer2"), 3u);
}

TEST(Linet, GroupsEveryParameterOnceByThePathsOfItsLanes) {
  Linet net(small_shape(), at::kFloat, at::kFloat);
  std::set<const lanes::LaneParameter*> seen;
  for (const PathGroup& group : net.groups())
    for (const lanes::LaneParameter* parameter : group.parameters) {
      EXPECT_EQ(parameter->value().size(0), std::ssize(group.paths));
      EXPECT_TRUE(seen.insert(parameter).second);
    }
  EXPECT_EQ(seen.size(), net.parameters().size());
}

TEST(Linet, IsChannelsLastEverywhereFromBirthThroughAnUpdate) {
  const LinetShape shape = small_shape();
  Linet net(shape, at::kFloat, at::kFloat);
  std::vector<std::unique_ptr<lanes::LaneSGD>> optimizers;
  for (PathGroup& group : net.groups())
    optimizers.push_back(
        std::make_unique<lanes::LaneSGD>(group.parameters, lanes::LaneSgdOptions{.momentum = 0.9}));
  const auto expect_layout = [&] {
    for (const lanes::NamedParameter& named : net.parameters()) {
      if (named.parameter->value().dim() != 5) continue;
      for (const at::Tensor& tensor :
           {named.parameter->value(), named.parameter->gradient(), named.parameter->compute()})
        EXPECT_EQ(tensor.stride(2), 1) << named.name;
    }
    for (const auto& optimizer : optimizers)
      for (const at::Tensor& state : optimizer->state())
        EXPECT_TRUE(state.dim() != 5 || state.stride(2) == 1);
  };
  expect_layout();
  const at::Tensor losses =
      lanes::lane_cross_entropy(net.forward(inputs(shape)).logits, at::randint(0, 4, {1, 6}, at::kLong));
  lanes::lane_backward(losses, lanes::without_names(net.parameters()));
  for (const auto& optimizer : optimizers) optimizer->step();
  expect_layout();
  EXPECT_EQ(net.entry_conversions(), 0);
}

TEST(Linet, ConvertsAForeignInputAtTheEntry) {
  const LinetShape shape = small_shape({3});
  Linet net(shape, at::kFloat, at::kFloat);
  const at::Tensor x = at::randn({1, 2, 3, 20, 20});
  const at::Tensor foreign = net.forward({x}, {.mode = lanes::Mode::kEvaluate}).logits;
  EXPECT_EQ(net.entry_conversions(), 1);
  const at::Tensor native = lanes::empty_lanes(x.sizes(), x.options());
  native.copy_(x);
  EXPECT_TRUE(at::equal(net.forward({native}, {.mode = lanes::Mode::kEvaluate}).logits, foreign));
  EXPECT_EQ(net.entry_conversions(), 1);
  EXPECT_ERROR(net.forward({at::randn({1, 2, 4, 20, 20})}), UsageError, "stream 0", "[1,B,3,H,W]");
  EXPECT_ERROR(net.forward({x, x}), UsageError, "1 streams", "2");
}

}  // namespace
}  // namespace espalier::linet
