#include "espalier/lanes/conv/layer.h"

#include "espalier/core/error.h"
#include "espalier/lanes/active.h"
#include "espalier/lanes/optim/gradients.h"
#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#include "tests/support/stacked_layout.h"

namespace espalier::lanes {
namespace {

using testing::Dice;
using testing::Layer;
using testing::random_lanes;
using testing::Tensors;

Layer conv_layer(at::IntArrayRef x, at::IntArrayRef weight, const ConvGeometry& geometry, bool has_bias) {
  return {.stacked = [=](const Tensors& in) { return lane_conv2d(in[0], in[1], in[2], geometry); },
          .torch =
              [=](const Tensors& in) {
                return at::convolution(in[0], in[1], in[2].defined() ? std::optional(in[2]) : std::nullopt,
                                       {geometry.stride, geometry.stride},
                                       {geometry.padding, geometry.padding}, {1, 1}, false, {0, 0},
                                       geometry.groups);
              },
          .inputs = {random_lanes(x), random_lanes(weight),
                     has_bias ? random_lanes({weight[0], weight[1]}) : at::Tensor()}};
}

void expect_contracts_over_random_shapes() {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int64_t lanes = dice.roll(1, 5), groups = dice.roll(0, 1) ? 1 : dice.roll(1, 4);
    const int64_t channels = groups * dice.roll(1, 5), filters = groups * dice.roll(1, 6);
    const int64_t kernel = 1 + 2 * dice.roll(0, 2);
    const ConvGeometry geometry{
        .stride = dice.roll(1, 3), .padding = dice.roll(0, kernel / 2), .groups = groups};
    testing::expect_contracts(
        conv_layer({lanes, dice.roll(1, 7), channels, dice.roll(kernel, 11), dice.roll(kernel, 11)},
                   {lanes, filters, channels / groups, kernel, kernel}, geometry, dice.roll(0, 1) == 1));
  }
}

TEST(LaneConv, EqualsTorchLaneByLaneOverRandomShapes) {
  expect_contracts_over_random_shapes();
}

TEST(LaneConvCuda, EqualsTorchLaneByLaneOverRandomShapes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_contracts_over_random_shapes();
}

// Shapes that the kernels of all lanes take: channels and filters that are multiples of 8, or few channels;
// odd sizes, one lane, one pixel, more filters than a tile.
TEST(LaneConvCuda, EqualsTorchLaneByLaneOverTheKernelsShapes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  for (uint64_t seed = 0; seed < testing::num_seeds(32); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const bool narrow = dice.roll(0, 2) == 0;
    const int64_t lanes = dice.roll(1, 4), kernel = narrow ? 3 : 1 + 2 * dice.roll(0, 2);
    const int64_t channels = narrow ? dice.roll(1, 5) : 8 * dice.roll(1, 6), filters = 8 * dice.roll(1, 9);
    const ConvGeometry geometry{.stride = narrow ? 1 : dice.roll(1, 2), .padding = dice.roll(0, kernel / 2)};
    testing::expect_contracts(
        conv_layer({lanes, dice.roll(1, 9), channels, dice.roll(kernel, 13), dice.roll(kernel, 13)},
                   {lanes, filters, channels, kernel, kernel}, geometry, dice.roll(0, 1) == 1));
  }
  testing::expect_contracts(conv_layer({2, 40, 3, 33, 31}, {2, 8, 3, 3, 3}, {.padding = 1}, false));
  if (!espalier::testing::kIsEmulated)  // takes a minute there
    testing::expect_contracts(conv_layer({2, 33, 16, 17, 19}, {2, 136, 16, 3, 3}, {.padding = 1}, false));
  testing::expect_contracts(conv_layer({1, 67, 8, 16, 16}, {1, 16, 8, 3, 3}, {.padding = 1}, false));
  // Few channels, rows that want much shared memory before rows that want little: a kernel keeps what it was
  // allowed.
  for (const int64_t width : {40, 5})
    testing::expect_contracts(conv_layer({1, 2, 4, 7, width}, {1, 8, 4, 3, 3}, {.padding = 1}, false));
}

// 3x3 filters of few channels, from whole images in shared memory: every number of channels and filters that
// is taken, groups of images that are full and that are not, images of odd sizes and of one row or column,
// one image, many parts.
TEST(LaneConvCuda, EqualsTorchLaneByLaneFromWholeImages) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  set_conv_choosing(ConvChoosing::kFixed);  // without looking for something faster
  const auto images = [](int64_t lanes, int64_t batch, int64_t channels, int64_t filters, int64_t height,
                         int64_t width, bool has_bias) {
    return conv_layer({lanes, batch, channels, height, width}, {lanes, filters, channels, 3, 3},
                      {.padding = 1}, has_bias);
  };
  uint64_t seed = 0;
  for (const int64_t channels : {3, 8, 16, 32})
    for (const int64_t filters : {8, 16, 32}) {
      SCOPED_TRACE(std::to_string(channels) + " channels, " + std::to_string(filters) + " filters");
      Dice dice(seed++);
      testing::expect_contracts(images(dice.roll(1, 3), dice.roll(1, 40), channels, filters, dice.roll(1, 17),
                                       dice.roll(1, 17), dice.roll(0, 1) == 1));
      testing::expect_contracts(images(2, dice.roll(1, 9), channels, filters, 8, 8, false));
    }
  testing::expect_contracts(images(2, 1, 3, 8, 1, 1, false));
  testing::expect_contracts(images(2, 1, 8, 8, 1, 1, false));
  testing::expect_contracts(images(2, 19, 3, 8, 32, 32, false));
  testing::expect_contracts(images(2, 5, 8, 8, 32, 32, true));
  testing::expect_contracts(images(1, 37, 16, 32, 8, 8, false));
  // More than one image at a time is too much for the weights' pass on a card with 99 KiB.
  testing::expect_contracts(images(2, 5, 16, 16, 32, 32, false));
  testing::expect_equals_torch(images(1, 9, 32, 32, 20, 20, false));
  set_conv_choosing(ConvChoosing::kMeasure);
}

// Filters of one pixel and few channels: every number of both that is taken, pixels that fill a tile and that
// do not, many parts.
TEST(LaneConvCuda, EqualsTorchLaneByLaneWithFiltersOfOnePixel) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  set_conv_choosing(ConvChoosing::kFixed);
  uint64_t seed = 0;
  for (const int64_t channels : {8, 16, 32})
    for (const int64_t filters : {8, 16, 32}) {
      SCOPED_TRACE(std::to_string(channels) + " channels, " + std::to_string(filters) + " filters");
      Dice dice(seed++);
      const int64_t lanes = dice.roll(1, 3);
      testing::expect_contracts(
          conv_layer({lanes, dice.roll(1, 9), channels, dice.roll(1, 13), dice.roll(1, 13)},
                     {lanes, filters, channels, 1, 1}, {}, dice.roll(0, 1) == 1));
    }
  testing::expect_contracts(conv_layer({2, 1, 8, 1, 1}, {2, 8, 8, 1, 1}, {}, false));
  testing::expect_contracts(conv_layer({2, 7, 16, 16, 16}, {2, 16, 16, 1, 1}, {}, false));
  set_conv_choosing(ConvChoosing::kMeasure);
}

// A network's first convolution, which is folded: few channels, stride 2; odd sizes, all paddings, one pixel.
TEST(LaneConvCuda, EqualsTorchLaneByLaneWhereItIsFolded) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  set_conv_choosing(ConvChoosing::kFixed);  // without looking for something faster
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int64_t lanes = dice.roll(1, 3), kernel = dice.roll(2, 7), channels = dice.roll(1, 4);
    const ConvGeometry geometry{.stride = 2, .padding = dice.roll(0, kernel / 2)};
    testing::expect_contracts(
        conv_layer({lanes, dice.roll(1, 5), channels, dice.roll(kernel, 19), dice.roll(kernel, 19)},
                   {lanes, 8 * dice.roll(1, 3), channels, kernel, kernel}, geometry, dice.roll(0, 1) == 1));
  }
  testing::expect_contracts(
      conv_layer({1, 3, 3, 61, 70}, {1, 64, 3, 7, 7}, {.stride = 2, .padding = 3}, false));
  set_conv_choosing(ConvChoosing::kMeasure);
  EXPECT_EQ(conv_choices().at("weight 1x3x3x61x70 64 filters 7x7 stride 2 padding 3 groups 1 BFloat16"),
            "folded");
}

// One filter a channel, of every type: odd sizes, padding of nothing to more than the half of a filter,
// channels that are whole vectors and that are not, more than one block takes, one pixel.
TEST(LaneConvCuda, EqualsTorchLaneByLaneOverDepthwiseShapes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  const auto depthwise = [](int64_t lanes, int64_t batch, int64_t channels, int64_t height, int64_t width,
                            int64_t padding, bool has_bias) {
    return conv_layer({lanes, batch, channels, height, width}, {lanes, channels, 1, 3, 3},
                      {.padding = padding, .groups = channels}, has_bias);
  };
  for (uint64_t seed = 0; seed < testing::num_seeds(16); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int64_t channels = dice.roll(0, 1) ? 8 * dice.roll(1, 6) : dice.roll(2, 21);
    testing::expect_contracts(depthwise(dice.roll(1, 4), dice.roll(1, 7), channels, dice.roll(3, 13),
                                        dice.roll(3, 13), dice.roll(0, 2), dice.roll(0, 1) == 1));
  }
  testing::expect_contracts(depthwise(3, 5, 8, 1, 1, 1, false));
  testing::expect_contracts(depthwise(2, 3, 16, 2, 5, 1, true));
  testing::expect_contracts(depthwise(1, 3, 136, 4, 4, 1, false));
  testing::expect_contracts(depthwise(2, 70, 8, 19, 33, 1, false));  // several parts of a weight's gradient
}

// Entries that are not there change nothing for those that are; and nothing is measured, since only the
// kernel of all lanes leaves them out.
TEST(LaneConvCuda, LeavesOutEmptyEntriesForwardAndBackward) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  for (const int64_t groups : {1, 16}) {
    const Layer layer =
        conv_layer({4, 3, 16, 6, 7}, {4, 16, 16 / groups, 3, 3}, {.padding = 1, .groups = groups}, false);
    const at::Tensor grad = testing::output_grad(layer);
    const auto run = [&] {
      return testing::run(layer.stacked, testing::leaves(layer.inputs, at::kBFloat16), grad);
    };
    set_conv_choosing(ConvChoosing::kMeasure);
    Tensors some;
    {
      const ActiveLanes active(at::tensor({3, -1, -1, 0}, at::kLong).to(testing::test_device()));
      some = run();
    }
    EXPECT_FALSE(conv_choices().contains("forward 4x3x16x6x7 16 filters 3x3 stride 1 padding 1 groups " +
                                         std::to_string(groups) + " BFloat16"));
    set_conv_choosing(ConvChoosing::kFixed);
    const Tensors all = run();
    for (size_t i = 0; i < all.size(); ++i)
      for (const int64_t entry : {0, 3})
        testing::expect_same_bits(some[i].select(0, entry), all[i].select(0, entry),
                                  "result " + std::to_string(i));
  }
}

// Whatever is measured to be fastest computes the same, and is done again as it was recorded.
TEST(LaneConvCuda, EqualsTorchHoweverItIsChosenAndRepeatsWhatWasRecorded) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  set_conv_choosing(ConvChoosing::kMeasure);
  const auto sizes = std::vector<int64_t>{3, 21, 24, 12, 12};
  testing::expect_equals_torch(conv_layer(sizes, {3, 40, 24, 3, 3}, {.padding = 1}, true));
  const ConvChoices choices = conv_choices();
  for (const char* pass : {"forward", "data", "weight"}) {
    const std::string key =
        std::string(pass) + " 3x21x24x12x12 40 filters 3x3 stride 1 padding 1 groups 1 BFloat16";
    EXPECT_TRUE(choices.contains(key)) << key;
  }
  set_conv_choices(choices);
  EXPECT_EQ(conv_choices(), choices);
  EXPECT_ERROR(set_conv_choices({{"forward", "fast"}}), UsageError, "fast", "forward");
}

TEST(LaneConv, KeepsLanesChannelsLastWithOneChannelOrOnePixel) {
  for (const int64_t channels : {1, 3})
    for (const int64_t filters : {1, 4})
      for (const int64_t size : {1, 5})
        testing::expect_contracts(
            conv_layer({3, 2, channels, size, size}, {3, filters, channels, 1, 1}, {}, true));
  testing::expect_contracts(conv_layer({2, 3, 1, 1, 1}, {2, 1, 1, 3, 3}, {.padding = 1}, false));
  testing::expect_contracts(conv_layer({2, 3, 8, 9, 9}, {2, 8, 1, 3, 3}, {.padding = 1, .groups = 8}, false));
}

// Large enough for oneDNN's threads and blocked kernels.
TEST(LaneConv, GivesALaneTheBitsItHasAloneAtTheSizesOfAHost) {
  const Layer first = conv_layer({5, 16, 3, 32, 32}, {5, 8, 3, 3, 3}, {.padding = 1}, false);
  testing::expect_same_alone(first);
  const Layer inner = conv_layer({3, 13, 16, 16, 16}, {3, 32, 16, 3, 3}, {.padding = 1}, false);
  testing::expect_same_alone(inner);
  testing::expect_isolated(inner);
}

TEST(LaneConv, GivesItsParametersGradientsInTheirLayout) {
  LaneConv2d conv({.lanes = 3, .in_channels = 2, .out_channels = 5, .has_bias = true}, at::kFloat,
                  at::kFloat);
  for (const LaneParameter* parameter : without_names(conv.parameters())) {
    parameter->storage().normal_();
    ASSERT_TRUE(parameter->gradient().defined());
  }
  const void* before = conv.weight.gradient().data_ptr();
  const at::Tensor x = testing::stacked_copy(at::randn({3, 4, 2, 6, 6}), at::kFloat);
  lane_backward(conv.forward(x).sum({1, 2, 3, 4}), without_names(conv.parameters()));
  EXPECT_EQ(conv.weight.gradient().data_ptr(), before);
  EXPECT_TRUE(support::is_stacked_channels_last(conv.weight.gradient()));
  EXPECT_GT(testing::largest(conv.weight.gradient()), 0);
}

TEST(LaneConv, TakesEmptyBatchesAndNoLanes) {
  for (const auto& [lanes, batch] : {std::pair<int64_t, int64_t>{2, 0}, {0, 3}}) {
    LaneConv2d conv({.lanes = lanes, .in_channels = 2, .out_channels = 5}, at::kFloat, at::kFloat);
    const at::Tensor out =
        conv.forward(empty_stacked({lanes, batch, 2, 6, 6}, MemoryFormat::kChannelsLast, at::kFloat));
    EXPECT_EQ(out.sizes(), at::IntArrayRef({lanes, batch, 5, 4, 4}));
    lane_backward(out.sum({1, 2, 3, 4}), without_names(conv.parameters()));
    EXPECT_EQ(testing::largest(conv.weight.gradient()), 0);
  }
}

TEST(LaneConv, NamesTheArgumentThatItRefuses) {
  const at::Tensor x = random_lanes({2, 3, 4, 5, 5}), weight = random_lanes({2, 6, 4, 3, 3});
  EXPECT_ERROR(lane_conv2d(x[0], weight, {}, {}), c10::Error, "x", "[L,B,C,H,W]", "[3, 4, 5, 5]");
  EXPECT_ERROR(lane_conv2d(x.transpose(3, 4), weight, {}, {}), c10::Error, "x", "channels-last");
  EXPECT_ERROR(lane_conv2d(x, random_lanes({2, 6, 3, 3, 3}), {}, {}), c10::Error, "weight", "[2,K,4,k,k]");
  EXPECT_ERROR(lane_conv2d(x, random_lanes({3, 6, 4, 3, 3}), {}, {}), c10::Error, "weight", "[3, 6,");
  EXPECT_ERROR(lane_conv2d(x, weight, random_lanes({2, 5}), {}), c10::Error, "bias", "[2, 6]", "[2, 5]");
  EXPECT_ERROR(lane_conv2d(x, weight, {}, {.groups = 3}), c10::Error, "groups", "4 channels", "3");
  EXPECT_ERROR(lane_conv2d(x, weight, {}, {.stride = 0}), c10::Error, "stride", "0");
  EXPECT_ERROR(lane_conv2d(x, random_lanes({2, 6, 4, 7, 7}), {}, {}), c10::Error, "x", "7");
  EXPECT_ERROR(lane_conv2d(x, weight.to(at::kFloat), {}, {}), c10::Error, "weight", "Float", "Double");
}

}  // namespace
}  // namespace espalier::lanes
