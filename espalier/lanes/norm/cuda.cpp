#include "espalier/lanes/norm/cuda.h"

#if ESPALIER_WITH_CUDA
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/lanes/active.h"
#include "espalier/lanes/launch.h"
#include "espalier/lanes/norm/kernel.h"

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

enum class Kind : int64_t { kBatch, kGroup };

// What both passes hand over besides tensors that they make.
struct Call {
  Kind kind = Kind::kBatch;
  Mode mode = Mode::kTrain;
  Activation activation = Activation::kNone;
  Pooling pooling = Pooling::kNone;
  int64_t groups = 0;
  bool is_rectified = false;
  bool has_gradient = false;  // a backward pass may follow
  double eps = 0;
  double momentum = 0;
  at::Tensor mask;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor fallbacks;
};

NormArgs args_of(const Call& call, const at::Tensor& x, const at::Tensor& entries) {
  NormArgs args;
  args.lanes = static_cast<int32_t>(x.size(0));
  args.batch = static_cast<int32_t>(x.size(1));
  args.channels = static_cast<int32_t>(x.size(2));
  args.height = static_cast<int32_t>(x.size(3));
  args.width = static_cast<int32_t>(x.size(4));
  args.groups = static_cast<int32_t>(call.groups);
  args.type = kernel_type(x);
  args.training = call.mode == Mode::kTrain;
  args.relu = call.activation == Activation::kRelu;
  args.rectified = call.is_rectified;
  args.pool = call.pooling == Pooling::k2x2   ? NormPool::k2x2
              : call.pooling == Pooling::k3x3 ? NormPool::k3x3
                                              : NormPool::kNone;
  args.eps = call.eps;
  args.momentum = call.momentum;
  args.entries = entries_of(entries);
  if (call.mask.defined()) {
    args.mask = call.mask.const_data_ptr<bool>();
    args.mask_stride = call.mask.stride(0);
  }
  args.x = stack_of(x);
  return args;
}

at::TensorOptions sum_options(const at::Tensor& x) {
  return x.options().dtype(x.element_size() == 2 ? at::kFloat : at::kDouble);
}

struct NormKernelFunction : torch::autograd::Function<NormKernelFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& given_residual,
                            Call call) {
    const c10::cuda::CUDAGuard guard(given.device());
    const at::Tensor x = for_kernel(given), entries = active_entries(x.size(0));
    const auto wide = wide_type(x);
    const auto options = x.options().dtype(wide);
    const at::Tensor wide_weight = dense_rows(as_wide(weight, wide)),
                     wide_bias = dense_rows(as_wide(bias, wide));
    const at::Tensor residual = given_residual ? for_kernel(*given_residual) : at::Tensor();
    const auto pooled = [&](int64_t size) {
      return call.pooling == Pooling::k2x2 ? size / 2 : call.pooling == Pooling::k3x3 ? (size + 1) / 2 : size;
    };
    const at::Tensor out =
        empty_lanes({x.size(0), x.size(1), x.size(2), pooled(x.size(3)), pooled(x.size(4))}, x.options());
    const bool keeps_places = call.pooling == Pooling::k3x3;
    const at::Tensor winner_values = keeps_places || (call.pooling == Pooling::k2x2 && call.has_gradient)
                                         ? empty_lanes(out.sizes(), x.options())
                                         : at::Tensor();
    const at::Tensor winners =
        keeps_places ? at::empty({out.numel()}, x.options().dtype(at::kByte)) : at::Tensor();
    const bool is_batch = call.kind == Kind::kBatch;
    const at::Tensor statistics = is_batch ? at::empty({2, x.size(0), x.size(2)}, options)
                                           : at::empty({2, x.size(0), x.size(1), call.groups}, options);
    const at::Tensor count = at::empty({x.size(0)}, options);

    NormArgs args = args_of(call, x, entries);
    args.out = stack_of(out);
    args.residual = stack_of(residual);
    args.winner_values = stack_of(winner_values);
    if (keeps_places) args.winners = winners.data_ptr<uint8_t>();
    args.weight = stack_of(wide_weight);
    args.bias = stack_of(wide_bias);
    args.mean = statistics.select(0, 0).data_ptr();
    args.scale = statistics.select(0, 1).data_ptr();
    args.count = count.data_ptr();
    if (is_batch) {
      TORCH_CHECK(call.running_mean.scalar_type() == wide && call.running_var.scalar_type() == wide,
                  "lane_batch_norm2d: running_mean: want ", wide, " on CUDA, got ",
                  call.running_mean.scalar_type());
      for (const at::Tensor& running : {call.running_mean, call.running_var})
        TORCH_CHECK(running.size(1) <= 1 || running.stride(1) == 1,
                    "lane_batch_norm2d: running_mean: want dense rows, got strides ", running.strides());
      args.running_mean = stack_of(call.running_mean);
      args.running_var = stack_of(call.running_var);
      if (call.fallbacks.defined()) args.fallbacks = call.fallbacks.mutable_data_ptr<double>();
    }
    const at::Tensor partial =
        at::empty({is_batch && args.training ? batch_norm_partials(args) : 0}, sum_options(x));
    args.partial = partial.data_ptr();
    if (x.numel() > 0)
      C10_CUDA_CHECK(is_batch ? launch_batch_norm_forward(args, stream_of(x))
                              : launch_group_norm_forward(args, stream_of(x)));
    // Past a residual the ReLU is found again from the output, which the next layer keeps anyway; group norm
    // has none.
    ctx->save_for_backward({x, weight, bias, statistics, count, call.mask, entries,
                            residual.defined() && is_batch ? out : at::Tensor(), winner_values, winners});
    ctx->saved_data["kind"] = static_cast<int64_t>(call.kind);
    ctx->saved_data["mode"] = static_cast<int64_t>(call.mode);
    ctx->saved_data["activation"] = static_cast<int64_t>(call.activation);
    ctx->saved_data["pooling"] = static_cast<int64_t>(call.pooling);
    ctx->saved_data["groups"] = call.groups;
    ctx->saved_data["rectified"] = call.is_rectified;
    ctx->saved_data["residual"] = residual.defined();
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &statistics = saved[3];
    const c10::cuda::CUDAGuard guard(x.device());
    const Call call{.kind = static_cast<Kind>(ctx->saved_data["kind"].toInt()),
                    .mode = static_cast<Mode>(ctx->saved_data["mode"].toInt()),
                    .activation = static_cast<Activation>(ctx->saved_data["activation"].toInt()),
                    .pooling = static_cast<Pooling>(ctx->saved_data["pooling"].toInt()),
                    .groups = ctx->saved_data["groups"].toInt(),
                    .is_rectified = ctx->saved_data["rectified"].toBool(),
                    .mask = saved[5]};
    const auto wide = wide_type(x);
    const auto options = x.options().dtype(wide);
    const at::Tensor grad = for_kernel(grads[0]);
    const at::Tensor wide_weight = dense_rows(as_wide(weight, wide)),
                     wide_bias = dense_rows(as_wide(bias, wide));
    const at::Tensor grad_x = ctx->needs_input_grad(0) ? empty_lanes(x.sizes(), x.options()) : at::Tensor();
    at::Tensor grad_residual =
        saved[7].defined() && ctx->needs_input_grad(3) ? empty_lanes(x.sizes(), x.options()) : at::Tensor();
    const bool empty = x.numel() == 0;
    const auto make = [&] {
      return empty ? zero_lanes(weight.sizes(), options) : empty_lanes(weight.sizes(), options);
    };
    const at::Tensor grad_weight = make(), grad_bias = make();

    NormArgs args = args_of(call, x, saved[6]);
    args.out = stack_of(grad);
    args.grad_x = stack_of(grad_x);
    args.y = stack_of(saved[7]);
    args.winner_values = stack_of(saved[8]);
    if (saved[9].defined()) args.winners = saved[9].data_ptr<uint8_t>();
    args.grad_residual = stack_of(grad_residual);
    args.weight = stack_of(wide_weight);
    args.bias = stack_of(wide_bias);
    args.grad_weight = stack_of(grad_weight);
    args.grad_bias = stack_of(grad_bias);
    args.mean = statistics.select(0, 0).data_ptr();
    args.scale = statistics.select(0, 1).data_ptr();
    args.count = saved[4].data_ptr();
    const bool is_batch = call.kind == Kind::kBatch;
    const at::Tensor partial =
        at::empty({is_batch ? batch_norm_partials(args) : group_norm_partials(args)}, sum_options(x));
    args.partial = partial.data_ptr();
    if (!empty)
      C10_CUDA_CHECK(is_batch ? launch_batch_norm_backward(args, stream_of(x))
                              : launch_group_norm_backward(args, stream_of(x)));
    // A sum hands its gradient on as it is, where it lies as a stack does.
    if (!is_batch && ctx->saved_data["residual"].toBool() && ctx->needs_input_grad(3))
      grad_residual = grad.strides() == x.strides() ? grad : empty_lanes(x.sizes(), x.options()).copy_(grad);
    return {grad_x, like(grad_weight, weight), like(grad_bias, bias), grad_residual, at::Tensor()};
  }

  // A gradient in its parameter's type.
  static at::Tensor like(const at::Tensor& gradient, const at::Tensor& parameter) {
    if (gradient.scalar_type() == parameter.scalar_type()) return gradient;
    const at::Tensor narrow = empty_lanes(parameter.sizes(), parameter.options());
    narrow.copy_(gradient);
    return narrow;
  }
};

}  // namespace

bool takes_norm_kernel(const at::Tensor& x) {
  // 32-bit places in a lane.
  return x.is_cuda() && has_kernel_type(x) && format_of(x) == MemoryFormat::kChannelsLast &&
         (x.size(0) == 0 || x.numel() / x.size(0) < int64_t{1} << 31);
}

at::Tensor batch_norm_by_kernel(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                const BatchNormCall& call) {
  TORCH_CHECK(call.pooling != Pooling::k2x2 || (x.size(3) >= 2 && x.size(4) >= 2),
              "lane_batch_norm2d: x: want at least 2 x 2 pixels to pool, got ", x.sizes());
  return NormKernelFunction::apply(
      x, weight, bias, if_defined(call.residual),
      Call{.kind = Kind::kBatch,
           .mode = call.mode,
           .activation = call.activation,
           .pooling = call.pooling,
           .has_gradient = c10::GradMode::is_enabled() &&
                           (x.requires_grad() || weight.requires_grad() || bias.requires_grad()),
           .eps = call.eps,
           .momentum = call.momentum,
           .mask = dense_rows(call.mask),
           .running_mean = call.running_mean,
           .running_var = call.running_var,
           .fallbacks = call.fallbacks});
}

at::Tensor group_norm_by_kernel(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                const GroupNormCall& call) {
  return NormKernelFunction::apply(x, weight, bias, if_defined(call.residual),
                                   Call{.kind = Kind::kGroup,
                                        .activation = call.activation,
                                        .groups = call.groups,
                                        .is_rectified = call.is_rectified,
                                        .eps = call.eps,
                                        .mask = dense_rows(call.mask)});
}

}  // namespace espalier::lanes
#endif
