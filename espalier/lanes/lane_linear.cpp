#include "espalier/lanes/lane_linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/lanes/lane_tensor.h"

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct LaneLinearFunction : torch::autograd::Function<LaneLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["has_bias"] = bias.has_value();
    at::Tensor out = empty_lanes({x.size(0), x.size(1), weight.size(1)}, x.options());
    for (int64_t lane = 0; lane < x.size(0); ++lane) {
      at::Tensor to = out.select(0, lane);
      const at::Tensor from = x.select(0, lane), transposed = weight.select(0, lane).t();
      if (bias) {
        at::addmm_out(to, bias->select(0, lane), from, transposed);
      } else {
        at::mm_out(to, from, transposed);
      }
    }
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const auto wanted = [&](size_t input, at::IntArrayRef sizes) {
      return ctx->needs_input_grad(input) ? empty_lanes(sizes, x.options()) : at::Tensor();
    };
    const at::Tensor of_x = wanted(0, x.sizes()), of_weight = wanted(1, weight.sizes());
    const at::Tensor of_bias =
        ctx->saved_data["has_bias"].toBool() ? wanted(2, {weight.size(0), weight.size(1)}) : at::Tensor();
    for (int64_t lane = 0; lane < x.size(0); ++lane) {
      const at::Tensor grad = grads[0].select(0, lane);  // [B,O]
      if (of_x.defined()) {
        at::Tensor to = of_x.select(0, lane);
        at::mm_out(to, grad, weight.select(0, lane));
      }
      if (of_weight.defined()) {
        at::Tensor to = of_weight.select(0, lane);
        at::mm_out(to, grad.t(), x.select(0, lane));
      }
      if (of_bias.defined()) {
        at::Tensor to = of_bias.select(0, lane);
        at::sum_out(to, grad, at::IntArrayRef({0}));
      }
    }
    return {of_x, of_weight, of_bias};
  }
};

}  // namespace

at::Tensor lane_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  TORCH_CHECK(x.dim() == 3 && x.is_floating_point(), "lane_linear: x: want [L,B,I] of floats, got ",
              x.sizes(), " ", x.scalar_type());
  TORCH_CHECK(weight.dim() == 3 && weight.size(0) == x.size(0) && weight.size(2) == x.size(2),
              "lane_linear: weight: want [", x.size(0), ",O,", x.size(2), "], got ", weight.sizes());
  TORCH_CHECK(weight.scalar_type() == x.scalar_type() && weight.device() == x.device(),
              "lane_linear: weight: want ", x.scalar_type(), " on ", x.device(), " as x, got ",
              weight.scalar_type(), " on ", weight.device());
  if (bias.defined()) {
    check_sizes(bias, {weight.size(0), weight.size(1)}, "lane_linear", "bias", "[L,O]");
    TORCH_CHECK(bias.scalar_type() == x.scalar_type(), "lane_linear: bias: want ", x.scalar_type(),
                " as x, got ", bias.scalar_type());
  }
  return LaneLinearFunction::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

LaneLinear::LaneLinear(const LaneLinearOptions& options, const at::TensorOptions& tensor_options)
    : weight(make_parameter({options.lanes, options.out_features, options.in_features}, tensor_options)) {
  if (options.has_bias) bias = make_parameter({options.lanes, options.out_features}, tensor_options);
}

std::vector<at::Tensor> LaneLinear::parameters() const {
  return bias.defined() ? std::vector<at::Tensor>{weight, bias} : std::vector<at::Tensor>{weight};
}

}  // namespace espalier::lanes
