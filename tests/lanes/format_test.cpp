// Lanes of one channel or one pixel lie in both orders: every layer gives right numbers whatever strides
// axes of one element have, and hands on the network's format.
#include "espalier/lanes/conv/layer.h"
#include "espalier/lanes/head/linear.h"
#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/head/pool.h"
#include "espalier/lanes/norm/layer.h"
#include "espalier/lanes/optim/gradients.h"
#include "tests/lanes/compare.h"
#include "tests/lanes/layouts.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

using testing::dense_layouts;
using testing::Laid;
using testing::laid_in;
using testing::Layer;
using testing::random_lanes;
using testing::Tensors;
namespace F = torch::nn::functional;

using Sizes = std::vector<int64_t>;

// [L,B,C,H,W]: one channel, one pixel, one sample, one lane, and all of them.
const std::vector<Sizes> kSizes{{1, 3, 1, 5, 4}, {2, 3, 1, 5, 4}, {1, 1, 1, 6, 6}, {3, 4, 4, 1, 1},
                                {1, 2, 4, 1, 1}, {2, 2, 1, 1, 1}, {1, 2, 1, 1, 7}};

// The output and all gradients, with x and the gradient that is sent back in every layout, against torch in
// f64; f32 within the roundings of its sums.
void expect_right_in_every_layout(const Layer& layer) {
  const at::Tensor grad = testing::output_grad(layer);
  const Tensors want = testing::run_torch(layer, layer.inputs, grad);
  for (const auto type : {at::kDouble, at::kFloat}) {
    const std::vector<Laid> layouts = dense_layouts(layer.inputs[0].to(type));
    const std::vector<Laid> grads =
        grad.dim() == 5 ? dense_layouts(grad.to(type)) : std::vector<Laid>(layouts.size(), {"dense", grad});
    for (size_t laid = 0; laid < layouts.size(); ++laid)
      for (const size_t with : {laid, (laid + 3) % grads.size()}) {
        const Laid &x = layouts[laid], &sent = grads[with];
        SCOPED_TRACE(fmt::format("{} {} of {}, gradient {}", c10::toString(type), x.name,
                                 c10::Join("x", x.tensor.sizes().vec()), sent.name));
        Tensors inputs = testing::leaves(layer.inputs, type);
        inputs[0] = x.tensor.detach().set_requires_grad(true);
        const Tensors got = testing::run(layer.stacked, inputs, sent.tensor);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_EQ(got[i].sizes(), want[i].sizes()) << "result " << i;
          EXPECT_LE(testing::distance(got[i], want[i]),
                    (type == at::kDouble ? 1e-9 : 1e-4) * std::max(1.0, testing::largest(want[i])))
              << "result " << i;
        }
      }
  }
}

// filters: how they lie, which is the network's format.
Layer conv_layer(const Sizes& x, int64_t filters, int64_t kernel, ConvGeometry geometry,
                 MemoryFormat format) {
  const auto torch_conv = [=](const Tensors& in) {
    return at::convolution(in[0], in[1], std::nullopt, {geometry.stride, geometry.stride},
                           {geometry.padding, geometry.padding}, {1, 1}, false, {0, 0}, geometry.groups);
  };
  return {
      .stacked = [=](const Tensors& in) { return lane_conv2d(in[0], laid_in(in[1], format), {}, geometry); },
      .torch = torch_conv,
      .inputs = {random_lanes(x), random_lanes({x[0], filters, x[2] / geometry.groups, kernel, kernel})}};
}

void expect_convolutions() {
  torch::manual_seed(1);
  for (const Sizes& sizes : kSizes)
    for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
      expect_right_in_every_layout(conv_layer(sizes, 4, 3, {.padding = 1}, format));
      expect_right_in_every_layout(conv_layer(sizes, 1, 1, {}, format));
      expect_right_in_every_layout(conv_layer(sizes, 3, 7, {.stride = 2, .padding = 3}, format));
      if (sizes[2] > 1)
        expect_right_in_every_layout(
            conv_layer(sizes, sizes[2], 3, {.padding = 1, .groups = sizes[2]}, format));
    }
}

TEST(LaneFormat, ConvolvesRightInEveryLayout) {
  expect_convolutions();
}

TEST(LaneFormatCuda, ConvolvesRightInEveryLayout) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_convolutions();
}

// Inputs: x, weight, bias, residual, mask.
Layer batch_norm_layer(const Sizes& sizes, Mode mode, bool has_residual, const at::Tensor& mask,
                       MemoryFormat residual_format) {
  const int64_t lanes = sizes[0], channels = sizes[2];
  return {.stacked =
              [=](const Tensors& in) {
                const LaneBatchNorm2d norm(lanes, channels, in[0].options().requires_grad(false));
                return lane_batch_norm2d(
                    in[0], in[1], in[2],
                    {.mode = mode,
                     .mask = in[4],
                     .running_mean = norm.running_mean,
                     .running_var = norm.running_var,
                     .residual = in[3].defined() ? laid_in(in[3], residual_format) : at::Tensor(),
                     .activation = Activation::kRelu});
              },
          .torch =
              [=](const Tensors& in) {
                at::Tensor x = in[0], added = in[3];
                const at::Tensor places = in[4].defined() ? in[4].nonzero().flatten()
                                                          : at::arange(x.size(0), at::kLong).to(x.device());
                x = x.index_select(0, places);
                at::Tensor y = F::batch_norm(
                    x, at::zeros({channels}, x.options().requires_grad(false)),
                    at::ones({channels}, x.options().requires_grad(false)),
                    F::BatchNormFuncOptions().weight(in[1]).bias(in[2]).training(mode == Mode::kTrain));
                if (added.defined()) y = y + added.index_select(0, places);
                return at::zeros_like(in[0]).index_put({places}, y.relu());
              },
          .inputs = {random_lanes(sizes), random_lanes({lanes, channels}), random_lanes({lanes, channels}),
                     has_residual ? random_lanes(sizes) : at::Tensor(), mask}};
}

void expect_norms() {
  torch::manual_seed(2);
  for (const Sizes& sizes : kSizes) {
    for (const bool has_residual : {false, true})
      for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
        for (const Mode mode : {Mode::kTrain, Mode::kEvaluate}) {
          expect_right_in_every_layout(batch_norm_layer(sizes, mode, has_residual, {}, format));
          at::Tensor mask = at::ones({sizes[0], sizes[1]}, at::kBool);
          if (sizes[1] > 2) mask[0][1] = false;
          expect_right_in_every_layout(
              batch_norm_layer(sizes, mode, has_residual, mask.to(testing::test_device()), format));
        }
    if (sizes[2] * sizes[3] * sizes[4] == 1) continue;  // nothing but its bias comes out
    expect_right_in_every_layout(
        {.stacked = [](const Tensors& in) { return lane_group_norm(in[0], in[1], in[2], {.groups = 1}); },
         .torch = [](const Tensors& in) { return at::group_norm(in[0], 1, in[1], in[2]); },
         .inputs = {random_lanes(sizes), random_lanes({sizes[0], sizes[2]}),
                    random_lanes({sizes[0], sizes[2]})}});
  }
}

TEST(LaneFormat, NormalisesRightInEveryLayout) {
  expect_norms();
}

TEST(LaneFormatCuda, NormalisesRightInEveryLayout) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_norms();
}

void expect_pools() {
  torch::manual_seed(3);
  for (const Sizes& sizes : kSizes) {
    if (sizes[3] > 1 && sizes[4] > 1)
      expect_right_in_every_layout({.stacked = [](const Tensors& in) { return lane_max_pool2x2(in[0]); },
                                    .torch = [](const Tensors& in) { return at::max_pool2d(in[0], {2, 2}); },
                                    .inputs = {random_lanes(sizes)}});
    expect_right_in_every_layout(
        {.stacked = [](const Tensors& in) { return lane_max_pool3x3(in[0]); },
         .torch = [](const Tensors& in) { return at::max_pool2d(in[0], {3, 3}, {2, 2}, {1, 1}); },
         .inputs = {random_lanes(sizes)}});
    expect_right_in_every_layout(
        {.stacked = [](const Tensors& in) { return lane_global_average_pool(in[0]); },
         .torch = [](const Tensors& in) { return in[0].mean({2, 3}); },
         .inputs = {random_lanes(sizes)}});
  }
}

TEST(LaneFormat, PoolsRightInEveryLayout) {
  expect_pools();
}

TEST(LaneFormatCuda, PoolsRightInEveryLayout) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_pools();
}

// [L,B,I] and [L,B] with single features, samples and lanes, and with rows that are not dense.
void expect_heads() {
  torch::manual_seed(4);
  const auto device = testing::test_device();
  for (const Sizes& sizes : std::vector<Sizes>{{2, 3, 1}, {1, 1, 4}, {2, 1, 1}, {2, 3, 4}}) {
    const int64_t lanes = sizes[0], batch = sizes[1];
    const auto transposed = [](const at::Tensor& t) {
      return t.t().clone(c10::MemoryFormat::Contiguous).t();
    };
    const at::Tensor weight = random_lanes({lanes, 5, sizes[2]}), bias = random_lanes({lanes, 5});
    const at::Tensor labels = at::randint(0, 5, {lanes, batch}, at::kLong).to(device);
    const at::Tensor mask = testing::random_mask(lanes, batch, 1);
    for (const auto type : {at::kDouble, at::kFloat}) {
      const auto leaf = [&](const at::Tensor& t) { return t.to(type).detach().set_requires_grad(true); };
      const at::Tensor values = random_lanes(sizes);
      std::vector<Laid> layouts{{"dense", values.clone(c10::MemoryFormat::Contiguous)},
                                {"transposed", values.permute({2, 1, 0}).contiguous().permute({2, 1, 0})}};
      for (const Laid& x : layouts) {
        SCOPED_TRACE(x.name + " " + c10::Join("x", sizes));
        const at::Tensor in = leaf(x.tensor), w = leaf(weight.transpose(1, 2).contiguous().transpose(1, 2)),
                         b = leaf(transposed(bias));
        const at::Tensor loss =
            lane_cross_entropy(lane_linear(in, w, b), transposed(labels), transposed(mask)).sum();
        const Tensors got = torch::autograd::grad({loss}, {in, w, b});
        const at::Tensor own = leaf(values), own_w = leaf(weight), own_b = leaf(bias);
        const at::Tensor logits = at::baddbmm(own_b.unsqueeze(1), own, own_w.transpose(1, 2));
        const at::Tensor each = F::cross_entropy(logits.flatten(0, 1), labels.flatten(),
                                                 F::CrossEntropyFuncOptions().reduction(torch::kNone))
                                    .view({lanes, batch});
        const at::Tensor valid = mask.to(type);
        const at::Tensor want = ((each * valid).sum(1) / valid.sum(1)).sum();
        const Tensors expected = torch::autograd::grad({want}, {own, own_w, own_b});
        const double tolerance = type == at::kDouble ? 1e-12 : 1e-5;
        EXPECT_LE(testing::distance(loss, want), tolerance);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_LE(testing::distance(got[i], expected[i]), tolerance) << "gradient " << i;
        EXPECT_TRUE(
            at::equal(lane_accuracy(lane_linear(in, w, b), transposed(labels), transposed(mask)).num_correct,
                      ((logits.argmax(2) == labels) & mask).sum(1)));
      }
    }
  }
}

TEST(LaneFormat, HeadsReadRowsHoweverTheyLie) {
  expect_heads();
}

TEST(LaneFormatCuda, HeadsReadRowsHoweverTheyLie) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_heads();
}

TEST(LaneFormatCuda, NormsReadMasksAndParametersHoweverTheyLie) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  torch::manual_seed(5);
  const auto transposed = [](const at::Tensor& t) { return t.t().clone(c10::MemoryFormat::Contiguous).t(); };
  const at::Tensor x = random_lanes({3, 4, 8, 2, 2}), mask = testing::random_mask(3, 4, 2);
  const at::Tensor weight = random_lanes({3, 8}), bias = random_lanes({3, 8});
  const LaneBatchNorm2d first(3, 8, x.options()), second(3, 8, x.options());
  const auto run = [&](const LaneBatchNorm2d& norm, const at::Tensor& m, const at::Tensor& w,
                       const at::Tensor& b) {
    return lane_batch_norm2d(x, w, b,
                             {.mask = m, .running_mean = norm.running_mean, .running_var = norm.running_var});
  };
  EXPECT_TRUE(at::equal(run(first, mask, weight, bias),
                        run(second, transposed(mask), transposed(weight), transposed(bias))));
}

TEST(LaneFormat, IsDecidedByAxesOfMoreThanOneElement) {
  const at::Tensor values = at::randn({2, 3, 4, 5, 6});
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    const at::Tensor laid = laid_in(values, format);
    EXPECT_EQ(format_of(laid), format);
    EXPECT_EQ(format_of(laid.narrow(1, 1, 1)), format) << "one sample of several";
    EXPECT_EQ(format_of(laid.narrow(0, 1, 1)), format) << "one lane of several";
    EXPECT_FALSE(lies_in(laid, format == MemoryFormat::kChannelsLast ? MemoryFormat::kContiguous
                                                                     : MemoryFormat::kChannelsLast));
  }
  EXPECT_FALSE(lies_in(values.transpose(3, 4), MemoryFormat::kChannelsLast));
  EXPECT_FALSE(lies_in(values.transpose(3, 4), MemoryFormat::kContiguous));
}

TEST(LaneFormat, IsReadFromTheStridesThatTheNetworkWroteWhereLanesLieInBothOrders) {
  for (const Sizes& sizes : kSizes) {
    if (sizes[2] == 1 && sizes[3] * sizes[4] == 1) continue;  // both formats write the same
    for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
      SCOPED_TRACE(c10::Join("x", sizes));
      const at::Tensor own = empty_lanes(sizes, at::kFloat, format);
      EXPECT_TRUE(lies_in(own, MemoryFormat::kChannelsLast));
      EXPECT_TRUE(lies_in(own, MemoryFormat::kContiguous));
      EXPECT_EQ(format_of(own), format);
      for (const Laid& laid : dense_layouts(own))
        EXPECT_EQ(format_of(as_lanes(laid.tensor, format)), format) << laid.name;
    }
  }
}

TEST(LaneFormat, OfAConvolutionIsThatOfItsFilters) {
  for (const Sizes& sizes : kSizes)
    for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
      const at::Tensor weight = laid_in(at::randn({sizes[0], 6, sizes[2], 3, 3}), format);
      for (const Laid& x : dense_layouts(at::randn(sizes))) {
        SCOPED_TRACE(x.name + " " + c10::Join("x", sizes));
        const at::Tensor out = lane_conv2d(x.tensor, weight, {}, {.padding = 1});
        EXPECT_EQ(out.strides(), empty_lanes(out.sizes(), out.options(), format).strides());
      }
    }
}

TEST(LaneFormat, RefusesFiltersThatLieOtherwise) {
  const at::Tensor x = laid_in(at::randn({2, 3, 4, 5, 5}), MemoryFormat::kContiguous);
  const at::Tensor weight = laid_in(at::randn({2, 3, 4, 3, 3}), MemoryFormat::kChannelsLast);
  EXPECT_ERROR(lane_conv2d(x, weight, {}, {}), c10::Error, "weight", "memory format");
}

}  // namespace
}  // namespace espalier::lanes
