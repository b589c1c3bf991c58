#include "espalier/lanes/conv/layer.h"

#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/lanes/active.h"
#include "espalier/lanes/conv/passes.h"
#include "espalier/lanes/stack.h"

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// The layer's own filters come first: where both lie in both orders, theirs is the network's.
MemoryFormat format_in(const at::Tensor& x, const at::Tensor& weight) {
  return common_format({weight, x});
}

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
  const MemoryFormat format = format_in(x, weight);
  TORCH_CHECK((x.numel() == 0 || lies_in(x, format)) && (weight.numel() == 0 || lies_in(weight, format)),
              "lane_conv2d: weight: want x's memory format, got strides ", weight.strides());
  if (bias.defined()) check_sizes(bias, {weight.size(0), weight.size(1)}, "lane_conv2d", "bias", "[L,K]");
}

int64_t size_after(int64_t size, int64_t kernel, const ConvGeometry& geometry) {
  return (size + 2 * geometry.padding - kernel) / geometry.stride + 1;
}

// The gradient of a bias: its lane's sum over samples and pixels, lane by lane, since how a sum over all
// lanes at once is shared out depends on how many there are.
void conv_backward_bias(const at::Tensor& grad, const at::Tensor& entries, const at::Tensor& grad_bias) {
  for (int64_t lane = 0; lane < grad.size(0); ++lane)
    if (is_active(entries, lane))
      grad_bias.select(0, lane).copy_(
          grad.select(0, lane).sum(at::IntArrayRef({0, 2, 3}), /*keepdim=*/false, sum_type(grad)));
}

// weight: the master, whose gradient is returned; compute: its copy of x's type, or itself without gradient.
struct LaneConv2dFunction : torch::autograd::Function<LaneConv2dFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& weight,
                            at::Tensor given_compute, const std::optional<at::Tensor>& bias,
                            ConvGeometry geometry) {
    const MemoryFormat format = format_in(given, given_compute);
    const at::Tensor x = as_lanes(given, format), compute = as_lanes(given_compute, format);
    const at::Tensor entries = active_entries(x.size(0));
    ctx->save_for_backward({x, compute, entries});
    ctx->saved_data["format"] = static_cast<int64_t>(format);
    ctx->saved_data["master"] = weight.scalar_type();
    ctx->saved_data["bias"] = bias ? bias->scalar_type() : at::ScalarType::Undefined;
    ctx->saved_data["stride"] = geometry.stride;
    ctx->saved_data["padding"] = geometry.padding;
    ctx->saved_data["groups"] = geometry.groups;
    const at::Tensor out =
        empty_lanes({x.size(0), x.size(1), weight.size(1), size_after(x.size(3), weight.size(3), geometry),
                     size_after(x.size(4), weight.size(4), geometry)},
                    x.options(), format);
    if (out.numel() > 0) conv_forward(x, compute, bias.value_or(at::Tensor()), geometry, entries, out);
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &entries = saved[2];
    const ConvGeometry geometry{.stride = ctx->saved_data["stride"].toInt(),
                                .padding = ctx->saved_data["padding"].toInt(),
                                .groups = ctx->saved_data["groups"].toInt()};
    const auto bias_type = ctx->saved_data["bias"].toScalarType();
    const bool empty = grads[0].numel() == 0;
    const auto format = static_cast<MemoryFormat>(ctx->saved_data["format"].toInt());
    const at::Tensor grad = as_lanes(grads[0], format);
    const auto make = [&](size_t input, at::IntArrayRef sizes, at::ScalarType type) {
      if (!ctx->needs_input_grad(input)) return at::Tensor();
      const auto options = x.options().dtype(type);
      return empty ? zero_lanes(sizes, options, format) : empty_lanes(sizes, options, format);
    };
    const at::Tensor grad_x = make(0, x.sizes(), x.scalar_type());
    const at::Tensor grad_weight = make(1, weight.sizes(), ctx->saved_data["master"].toScalarType());
    const at::Tensor grad_bias = bias_type == at::ScalarType::Undefined
                                     ? at::Tensor()
                                     : make(3, {weight.size(0), weight.size(1)}, bias_type);
    if (grad_x.defined() && !empty) conv_backward_data(grad, weight, geometry, entries, grad_x);
    if (grad_weight.defined() && !empty) conv_backward_weight(grad, x, geometry, entries, grad_weight);
    if (grad_bias.defined() && !empty) conv_backward_bias(grad, entries, grad_bias);
    return {grad_x, grad_weight, at::Tensor(), grad_bias, at::Tensor()};
  }
};

at::Tensor apply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& compute,
                 const at::Tensor& bias, const ConvGeometry& geometry) {
  check(x, compute, bias, geometry);
  return LaneConv2dFunction::apply(x, weight, compute, if_defined(bias), geometry);
}

}  // namespace

at::Tensor lane_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvGeometry& geometry) {
  return apply(x, weight, weight.detach(), bias, geometry);
}

LaneConv2d::LaneConv2d(const LaneConv2dOptions& options, const at::TensorOptions& tensor_options,
                       at::ScalarType compute)
    : geometry_(options.geometry) {
  TORCH_CHECK(options.geometry.groups >= 1 && options.in_channels % options.geometry.groups == 0,
              "LaneConv2d: groups: want a divisor of ", options.in_channels, " channels, got ",
              options.geometry.groups);
  weight = LaneParameter({options.lanes, options.out_channels, options.in_channels / options.geometry.groups,
                          options.kernel_size, options.kernel_size},
                         tensor_options, compute);
  if (options.has_bias)
    bias = LaneParameter({options.lanes, options.out_channels}, tensor_options,
                         c10::typeMetaToScalarType(tensor_options.dtype()));
}

at::Tensor LaneConv2d::forward(const at::Tensor& x) const {
  return apply(x, weight.value(), weight.compute(), bias.value(), geometry_);
}

std::vector<NamedParameter> LaneConv2d::parameters() {
  std::vector<NamedParameter> named{{"weight", &weight}};
  if (bias.defined()) named.push_back({"bias", &bias});
  return named;
}

}  // namespace espalier::lanes
