#include "espalier/lanes/head/pooled_linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include "espalier/lanes/active.h"
#include "espalier/lanes/head/linear.h"
#include "espalier/lanes/head/pool.h"
#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/launch.h"
#endif

namespace espalier::lanes {

#if ESPALIER_WITH_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

bool takes_pooled_kernel(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cuda() && has_kernel_type(x) && weight.scalar_type() == wide_type(x) &&
         format_of(x) == MemoryFormat::kChannelsLast && x.numel() > 0 && x.size(2) <= kMostPooledChannels &&
         x.numel() / x.size(0) < int64_t{1} << 31;
}

PooledLinearArgs pooled_args(at::IntArrayRef sizes, const at::Tensor& weight, const at::Tensor& pooled,
                             const at::Tensor& entries) {
  PooledLinearArgs args;
  args.pixels = static_cast<int32_t>(sizes[3] * sizes[4]);
  LinearArgs& linear = args.linear;
  linear.lanes = static_cast<int32_t>(sizes[0]);
  linear.batch = static_cast<int32_t>(sizes[1]);
  linear.in_features = static_cast<int32_t>(sizes[2]);
  linear.out_features = static_cast<int32_t>(weight.size(1));
  linear.type = kernel_type(pooled);
  linear.entries = entries_of(entries);
  linear.x = stack_of(pooled);
  linear.weight = stack_of(weight);
  return args;
}

struct PooledLinearFunction : torch::autograd::Function<PooledLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    const c10::cuda::CUDAGuard guard(given.device());
    const at::Tensor x = for_kernel(given), entries = active_entries(x.size(0));
    const at::Tensor factors = dense_lanes(weight), added = bias ? dense_rows(*bias) : at::Tensor();
    const at::Tensor pooled = empty_lanes({x.size(0), x.size(1), x.size(2)}, x.options()),
                     out = empty_lanes({x.size(0), x.size(1), weight.size(1)}, weight.options());
    PooledLinearArgs args = pooled_args(x.sizes(), factors, pooled, entries);
    args.images = stack_of(x);
    args.linear.bias = stack_of(added);
    args.linear.out = stack_of(out);
    C10_CUDA_CHECK(launch_pooled_linear_forward(args, stream_of(x)));
    ctx->save_for_backward({pooled, weight, entries});
    ctx->saved_data["sizes"] = x.sizes();
    ctx->saved_data["has_bias"] = bias.has_value();
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &pooled = saved[0], &weight = saved[1];
    const c10::cuda::CUDAGuard guard(pooled.device());
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    const auto wanted = [&](size_t input, at::IntArrayRef of, const at::Tensor& like) {
      return ctx->needs_input_grad(input) ? empty_lanes(of, like.options()) : at::Tensor();
    };
    const at::Tensor grad_x = wanted(0, sizes, pooled), grad_weight = wanted(1, weight.sizes(), weight);
    const at::Tensor grad_bias = ctx->saved_data["has_bias"].toBool()
                                     ? wanted(2, {weight.size(0), weight.size(1)}, weight)
                                     : at::Tensor();
    const at::Tensor grad = dense_lanes(grads[0]), factors = dense_lanes(weight);
    PooledLinearArgs args = pooled_args(sizes, factors, pooled, saved[2]);
    args.linear.out = stack_of(grad);
    args.images = stack_of(grad_x);
    args.linear.grad_weight = stack_of(grad_weight);
    args.linear.grad_bias = stack_of(grad_bias);
    C10_CUDA_CHECK(launch_pooled_linear_backward(args, stream_of(pooled)));
    return {grad_x, grad_weight, grad_bias};
  }
};

}  // namespace
#endif

at::Tensor lane_pooled_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  check_stacked(x, "lane_pooled_linear", "x");
  TORCH_CHECK(x.is_floating_point(), "lane_pooled_linear: x: want floats, got ", x.scalar_type());
  check_linear(x.size(0), x.size(2), x.device(), weight, bias, "lane_pooled_linear");
#if ESPALIER_WITH_CUDA
  if (takes_pooled_kernel(x, weight)) return PooledLinearFunction::apply(x, weight, if_defined(bias));
#endif
  return lane_linear(lane_global_average_pool(x), weight, bias);
}

}  // namespace espalier::lanes
