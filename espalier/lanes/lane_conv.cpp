#include "espalier/lanes/lane_conv.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "espalier/core/layout.h"
#include "espalier/lanes/lane_tensor.h"

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void check(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
           const ConvGeometry& geometry) {
  check_stacked(x, "lane_conv2d", "x");
  check_stacked(weight, "lane_conv2d", "weight");
  TORCH_CHECK(geometry.stride >= 1, "lane_conv2d: stride: want at least 1, got ", geometry.stride);
  TORCH_CHECK(geometry.padding >= 0, "lane_conv2d: padding: want at least 0, got ", geometry.padding);
  TORCH_CHECK(
      geometry.groups >= 1 && x.size(2) % geometry.groups == 0 && weight.size(1) % geometry.groups == 0,
      "lane_conv2d: groups: want a divisor of ", x.size(2), " channels and ", weight.size(1),
      " filters, got ", geometry.groups);
  TORCH_CHECK(weight.size(0) == x.size(0) && weight.size(2) == x.size(2) / geometry.groups,
              "lane_conv2d: weight: want [", x.size(0), ",K,", x.size(2) / geometry.groups, ",k,k], got ",
              weight.sizes());
  TORCH_CHECK(weight.scalar_type() == x.scalar_type() && weight.device() == x.device(),
              "lane_conv2d: weight: want ", x.scalar_type(), " on ", x.device(), " as x, got ",
              weight.scalar_type(), " on ", weight.device());
  for (const int64_t axis : {3, 4})
    TORCH_CHECK(x.size(axis) + 2 * geometry.padding >= weight.size(axis),
                "lane_conv2d: x: want at least the kernel's ", weight.size(axis), " rows and columns after ",
                geometry.padding, " of padding a side, got ", x.sizes());
  if (!bias.defined()) return;
  check_sizes(bias, {weight.size(0), weight.size(1)}, "lane_conv2d", "bias", "[L,K]");
  TORCH_CHECK(bias.scalar_type() == x.scalar_type(), "lane_conv2d: bias: want ", x.scalar_type(),
              " as x, got ", bias.scalar_type());
}

int64_t size_after(int64_t size, int64_t kernel, const ConvGeometry& geometry) {
  return (size + 2 * geometry.padding - kernel) / geometry.stride + 1;
}

struct LaneConv2dFunction : torch::autograd::Function<LaneConv2dFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, ConvGeometry geometry) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["stride"] = geometry.stride;
    ctx->saved_data["padding"] = geometry.padding;
    ctx->saved_data["groups"] = geometry.groups;
    ctx->saved_data["has_bias"] = bias.has_value();

    at::Tensor out =
        empty_stacked({x.size(0), x.size(1), weight.size(1), size_after(x.size(3), weight.size(3), geometry),
                       size_after(x.size(4), weight.size(4), geometry)},
                      MemoryFormat::kChannelsLast, x.options());
    if (out.numel() == 0) return out;
    const std::array<int64_t, 2> stride{geometry.stride, geometry.stride};
    const std::array<int64_t, 2> padding{geometry.padding, geometry.padding};
    for (int64_t lane = 0; lane < x.size(0); ++lane)
      out.select(0, lane).copy_(at::convolution(
          x.select(0, lane), weight.select(0, lane),
          bias ? std::optional(bias->select(0, lane)) : std::nullopt, stride, padding,
          /*dilation=*/{1, 1}, /*transposed=*/false, /*output_padding=*/{0, 0}, geometry.groups));
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const int64_t stride = ctx->saved_data["stride"].toInt(), padding = ctx->saved_data["padding"].toInt();
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    const std::array<bool, 3> wanted{ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                     has_bias && ctx->needs_input_grad(2)};

    const std::array<int64_t, 1> bias_sizes{weight.size(1)};
    std::array<at::Tensor, 3> results;  // of x, weight and bias, stacked as they are
    if (wanted[0]) results[0] = empty_lanes(x.sizes(), x.options());
    if (wanted[1]) results[1] = empty_lanes(weight.sizes(), weight.options());
    if (wanted[2]) results[2] = empty_lanes({weight.size(0), weight.size(1)}, weight.options());
    const bool empty = grads[0].numel() == 0;
    for (at::Tensor& result : results)
      if (empty && result.defined()) result.zero_();
    for (int64_t lane = 0; lane < x.size(0) && !empty; ++lane) {
      const auto [of_x, of_weight, of_bias] = at::convolution_backward(
          grads[0].select(0, lane), x.select(0, lane), weight.select(0, lane),
          has_bias ? at::OptionalIntArrayRef(bias_sizes) : at::OptionalIntArrayRef(), {stride, stride},
          {padding, padding}, /*dilation=*/{1, 1}, /*transposed=*/false, /*output_padding=*/{0, 0},
          ctx->saved_data["groups"].toInt(), wanted);
      if (wanted[0]) results[0].select(0, lane).copy_(of_x);
      if (wanted[1]) results[1].select(0, lane).copy_(of_weight);
      if (wanted[2]) results[2].select(0, lane).copy_(of_bias);
    }
    return {results[0], results[1], results[2], at::Tensor()};
  }
};

}  // namespace

at::Tensor lane_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvGeometry& geometry) {
  check(x, weight, bias, geometry);
  return LaneConv2dFunction::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, geometry);
}

LaneConv2d::LaneConv2d(const LaneConv2dOptions& options, const at::TensorOptions& tensor_options)
    : geometry_(options.geometry) {
  TORCH_CHECK(options.geometry.groups >= 1 && options.in_channels % options.geometry.groups == 0,
              "LaneConv2d: groups: want a divisor of ", options.in_channels, " channels, got ",
              options.geometry.groups);
  weight = make_parameter({options.lanes, options.out_channels, options.in_channels / options.geometry.groups,
                           options.kernel_size, options.kernel_size},
                          tensor_options);
  if (options.has_bias) bias = make_parameter({options.lanes, options.out_channels}, tensor_options);
}

at::Tensor LaneConv2d::forward(const at::Tensor& x) const {
  return lane_conv2d(x, weight, bias, geometry_);
}

std::vector<at::Tensor> LaneConv2d::parameters() const {
  return bias.defined() ? std::vector<at::Tensor>{weight, bias} : std::vector<at::Tensor>{weight};
}

}  // namespace espalier::lanes
