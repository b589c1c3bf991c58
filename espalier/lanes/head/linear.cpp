#include "espalier/lanes/head/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/lanes/active.h"
#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/launch.h"
#endif

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// The loop over lanes: out [L,B,O] = x [L,B,I] weight^T + bias, all of one type.
void loop_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& entries, const at::Tensor& out) {
  for (int64_t lane = 0; lane < x.size(0); ++lane) {
    if (!is_active(entries, lane)) continue;
    at::Tensor to = out.select(0, lane);
    const at::Tensor from = x.select(0, lane), transposed = weight.select(0, lane).t();
    if (bias.defined()) {
      at::addmm_out(to, bias.select(0, lane), from, transposed);
    } else {
      at::mm_out(to, from, transposed);
    }
  }
}

// Undefined results are left out.
void loop_backward(const at::Tensor& grads, const at::Tensor& x, const at::Tensor& weight,
                   const at::Tensor& entries, const at::Tensor& grad_x, const at::Tensor& grad_weight,
                   const at::Tensor& grad_bias) {
  for (int64_t lane = 0; lane < x.size(0); ++lane) {
    if (!is_active(entries, lane)) continue;
    const at::Tensor grad = grads.select(0, lane);  // [B,O]
    if (grad_x.defined()) grad_x.select(0, lane).copy_(grad.mm(weight.select(0, lane)));
    if (grad_weight.defined()) {
      at::Tensor to = grad_weight.select(0, lane);
      at::mm_out(to, grad.t(), x.select(0, lane));
    }
    if (grad_bias.defined()) {
      at::Tensor to = grad_bias.select(0, lane);
      at::sum_out(to, grad, at::IntArrayRef({0}));
    }
  }
}

// x in the weight's type; a copy keeps the lanes' alignment.
at::Tensor widened(const at::Tensor& x, const at::Tensor& weight) {
  if (x.scalar_type() == weight.scalar_type()) return x;
  const at::Tensor wide = empty_lanes(x.sizes(), weight.options());
  wide.copy_(x);
  return wide;
}

#if ESPALIER_WITH_CUDA
bool takes_kernel(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cuda() && has_kernel_type(x) && weight.scalar_type() == wide_type(x);
}

LinearArgs linear_args(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& entries) {
  LinearArgs args;
  args.lanes = static_cast<int32_t>(x.size(0));
  args.batch = static_cast<int32_t>(x.size(1));
  args.in_features = static_cast<int32_t>(x.size(2));
  args.out_features = static_cast<int32_t>(weight.size(1));
  args.type = kernel_type(x);
  args.entries = entries_of(entries);
  args.x = stack_of(x);
  args.weight = stack_of(weight);
  return args;
}
#endif

struct LaneLinearFunction : torch::autograd::Function<LaneLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    const at::Tensor entries = active_entries(x.size(0));
    ctx->save_for_backward({x, weight, entries});
    ctx->saved_data["has_bias"] = bias.has_value();
    const at::Tensor out = empty_lanes({x.size(0), x.size(1), weight.size(1)}, weight.options());
#if ESPALIER_WITH_CUDA
    if (takes_kernel(x, weight)) {
      const c10::cuda::CUDAGuard guard(x.device());
      const at::Tensor read = dense_lanes(x), factors = dense_lanes(weight);
      const at::Tensor added = bias ? dense_rows(*bias) : at::Tensor();
      LinearArgs args = linear_args(read, factors, entries);
      args.bias = stack_of(added);
      args.out = stack_of(out);
      if (out.numel() > 0) C10_CUDA_CHECK(launch_linear_forward(args, stream_of(x)));
      return out;
    }
#endif
    loop_forward(widened(x, weight), weight, bias.value_or(at::Tensor()), entries, out);
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &entries = saved[2];
    const auto wanted = [&](size_t input, at::IntArrayRef sizes, const at::Tensor& like) {
      return ctx->needs_input_grad(input) ? empty_lanes(sizes, like.options()) : at::Tensor();
    };
    const at::Tensor grad_x = wanted(0, x.sizes(), x), grad_weight = wanted(1, weight.sizes(), weight);
    const at::Tensor grad_bias = ctx->saved_data["has_bias"].toBool()
                                     ? wanted(2, {weight.size(0), weight.size(1)}, weight)
                                     : at::Tensor();
#if ESPALIER_WITH_CUDA
    if (takes_kernel(x, weight)) {
      const c10::cuda::CUDAGuard guard(x.device());
      const at::Tensor read = dense_lanes(x), grad = dense_lanes(grads[0]), factors = dense_lanes(weight);
      LinearArgs args = linear_args(read, factors, entries);
      args.out = stack_of(grad);
      args.grad_x = stack_of(grad_x);
      args.grad_weight = stack_of(grad_weight);
      args.grad_bias = stack_of(grad_bias);
      if (grad.size(0) > 0 && grad.size(2) > 0) C10_CUDA_CHECK(launch_linear_backward(args, stream_of(x)));
      return {grad_x, grad_weight, grad_bias};
    }
#endif
    loop_backward(grads[0], widened(x, weight), weight, entries, grad_x, grad_weight, grad_bias);
    return {grad_x, grad_weight, grad_bias};
  }
};

}  // namespace

void check_linear(int64_t lanes, int64_t in_features, at::Device device, const at::Tensor& weight,
                  const at::Tensor& bias, const char* function) {
  TORCH_CHECK(weight.dim() == 3 && weight.size(0) == lanes && weight.size(2) == in_features, function,
              ": weight: want [", lanes, ",O,", in_features, "], got ", weight.sizes());
  TORCH_CHECK(weight.is_floating_point() && weight.device() == device, function, ": weight: want floats on ",
              device, " as x, got ", weight.scalar_type(), " on ", weight.device());
  if (!bias.defined()) return;
  check_sizes(bias, {weight.size(0), weight.size(1)}, function, "bias", "[L,O]");
  TORCH_CHECK(bias.scalar_type() == weight.scalar_type(), function, ": bias: want ", weight.scalar_type(),
              " as the weight, got ", bias.scalar_type());
}

at::Tensor lane_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  TORCH_CHECK(x.dim() == 3 && x.is_floating_point(), "lane_linear: x: want [L,B,I] of floats, got ",
              x.sizes(), " ", x.scalar_type());
  check_linear(x.size(0), x.size(2), x.device(), weight, bias, "lane_linear");
  return LaneLinearFunction::apply(x, weight, if_defined(bias));
}

LaneLinear::LaneLinear(const LaneLinearOptions& options, const at::TensorOptions& tensor_options) {
  const auto type = c10::typeMetaToScalarType(tensor_options.dtype());
  weight = LaneParameter({options.lanes, options.out_features, options.in_features}, tensor_options, type);
  if (options.has_bias) bias = LaneParameter({options.lanes, options.out_features}, tensor_options, type);
}

std::vector<NamedParameter> LaneLinear::parameters() {
  std::vector<NamedParameter> named{{"weight", &weight}};
  if (bias.defined()) named.push_back({"bias", &bias});
  return named;
}

}  // namespace espalier::lanes
