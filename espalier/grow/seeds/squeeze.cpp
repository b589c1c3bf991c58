#include "espalier/grow/seeds/squeeze.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "espalier/grow/seeds/branch.h"
#include "espalier/grow/seeds/each_lane.h"
#include "espalier/lanes/active.h"
#include "espalier/lanes/head/pool.h"
#if ESPALIER_WITH_CUDA
#include "espalier/grow/seeds/squeeze_kernel.h"
#include "espalier/lanes/launch.h"
#include "espalier/lanes/most_lanes.h"
#endif

namespace espalier::grow {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Values times one factor, as the stack lies: torch's product would close the gaps between lanes.
struct TimesFunction : torch::autograd::Function<TimesFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double factor) {
    ctx->saved_data["factor"] = factor;
    return times(x, factor);
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    return {times(grads[0], ctx->saved_data["factor"].toDouble()), at::Tensor()};
  }
  static at::Tensor times(const at::Tensor& x, double factor) {
    at::Tensor out = stacked_like(x);
    return at::mul_out(out, x, at::scalar_tensor(factor, x.options().requires_grad(false)));
  }
};

#if ESPALIER_WITH_CUDA
at::Tensor rows_like(const at::Tensor& x, int64_t features, at::ScalarType type) {
  return lanes::empty_lanes({x.size(0), x.size(1), features}, x.options().dtype(type).requires_grad(false));
}

// What the kernels add up in, and keep for the way back.
at::ScalarType sum_type_of(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble ? at::kDouble : at::kFloat;
}

SqueezeArgs args_of(const at::Tensor& x, const at::Tensor& first_weight, const at::Tensor& second_weight,
                    const at::Tensor& entries) {
  return {.entries = static_cast<int32_t>(x.size(0)),
          .batch = static_cast<int32_t>(x.size(1)),
          .pixels = static_cast<int32_t>(x.size(3) * x.size(4)),
          .channels = static_cast<int32_t>(x.size(2)),
          .hidden = static_cast<int32_t>(first_weight.size(1)),
          .outputs = static_cast<int32_t>(second_weight.size(1)),
          .type = lanes::kernel_type(x),
          .active = lanes::entries_of(entries),
          .first_weight = lanes::stack_of(first_weight),
          .second_weight = lanes::stack_of(second_weight)};
}

struct SqueezeFunction : torch::autograd::Function<SqueezeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& first_weight,
                            const at::Tensor& first_bias, const at::Tensor& second_weight,
                            const at::Tensor& second_bias, double factor) {
    const c10::cuda::CUDAGuard guard(given.device());
    const at::Tensor x = lanes::for_kernel(given);
    const at::ScalarType type = lanes::wide_type(x);
    const at::Tensor pooled = rows_like(x, x.size(2), type),
                     middle = rows_like(x, first_weight.size(1), type),
                     out = rows_like(x, second_weight.size(1), type);
    const at::Tensor shares = rows_like(x, second_weight.size(1), sum_type_of(x.scalar_type()));
    const at::Tensor entries = lanes::active_entries(x.size(0));
    SqueezeArgs args = args_of(x, first_weight, second_weight, entries);
    args.factor = factor;
    args.x = lanes::stack_of(x);
    args.first_bias = lanes::stack_of(first_bias);
    args.second_bias = lanes::stack_of(second_bias);
    args.pooled = lanes::stack_of(pooled);
    args.middle = lanes::stack_of(middle);
    args.out = lanes::stack_of(out);
    args.shares = lanes::stack_of(shares);
    if (x.numel() > 0) C10_CUDA_CHECK(launch_squeeze_forward(args, lanes::stream_of(x)));
    ctx->save_for_backward(
        {first_weight, first_bias, second_weight, second_bias, pooled, middle, shares, entries});
    ctx->saved_data["factor"] = factor;
    ctx->saved_data["sizes"] = x.sizes();
    ctx->saved_data["type"] = x.scalar_type();
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const tensor_list saved = ctx->get_saved_variables();
    const at::Tensor &pooled = saved[4], &middle = saved[5], &shares = saved[6];
    const c10::cuda::CUDAGuard guard(shares.device());
    const at::Tensor grad = lanes::dense_lanes(grads[0]);
    const at::Tensor grad_x =
        lanes::empty_lanes(ctx->saved_data["sizes"].toIntVector(),
                           shares.options().dtype(ctx->saved_data["type"].toScalarType()));
    tensor_list grad_weights;
    for (size_t i = 0; i < 4; ++i)
      grad_weights.push_back(lanes::empty_lanes(saved[i].sizes(), pooled.options()));
    const at::Tensor grad_middle = rows_like(middle, middle.size(2), shares.scalar_type()),
                     grad_second = stacked_like(shares);
    SqueezeArgs args = args_of(grad_x, saved[0], saved[2], saved[7]);
    args.factor = ctx->saved_data["factor"].toDouble();
    args.x = lanes::stack_of(grad_x);
    args.pooled = lanes::stack_of(pooled);
    args.middle = lanes::stack_of(middle);
    args.shares = lanes::stack_of(shares);
    args.grad_out = lanes::stack_of(grad);
    args.grad_middle = lanes::stack_of(grad_middle);
    args.grad_second = lanes::stack_of(grad_second);
    args.grad_first_weight = lanes::stack_of(grad_weights[0]);
    args.grad_first_bias = lanes::stack_of(grad_weights[1]);
    args.grad_second_weight = lanes::stack_of(grad_weights[2]);
    args.grad_second_bias = lanes::stack_of(grad_weights[3]);
    if (grad_x.numel() > 0) C10_CUDA_CHECK(launch_squeeze_backward(args, lanes::stream_of(grad_x)));
    return {grad_x, grad_weights[0], grad_weights[1], grad_weights[2], grad_weights[3], at::Tensor()};
  }
};

// Channels-last, with values in a block's reach.
bool takes_squeeze_cuda(const at::Tensor& x, const SqueezeMap& first, const SqueezeMap& second) {
  const at::Tensor &wide = first.weight, &narrowed = second.weight;
  return x.is_cuda() && lanes::has_kernel_type(x) && lanes::lies_in(x, MemoryFormat::kChannelsLast) &&
         wide.scalar_type() == lanes::wide_type(x) &&
         std::max({wide.size(1), wide.size(2), narrowed.size(1)}) <= kMostSqueezeFeatures &&
         x.size(0) <= lanes::kMostLanesOnCuda && (x.size(0) == 0 || x.numel() / x.size(0) < int64_t{1} << 31);
}

#endif

}  // namespace

at::Tensor lane_squeeze(const at::Tensor& x, const SqueezeMap& first, const SqueezeMap& second,
                        double factor) {
#if ESPALIER_WITH_CUDA
  if (takes_squeeze_cuda(x, first, second))
    return SqueezeFunction::apply(x, first.weight, first.bias, second.weight, second.bias, factor);
#endif
  const at::Tensor features =
      lane_curve(lanes::lane_linear(lanes::lane_global_average_pool(x), first.weight, first.bias),
                 Curve::kRelu);  // [E,B,M]
  const at::Tensor out =
      lane_curve(lanes::lane_linear(features, second.weight, second.bias), Curve::kSigmoid);
  return factor == 1 ? out : TimesFunction::apply(out, factor);
}

}  // namespace espalier::grow
