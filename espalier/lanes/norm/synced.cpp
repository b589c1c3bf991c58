#include "espalier/lanes/norm/synced.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/lanes/active.h"
#include "espalier/lanes/head/pool.h"
#include "espalier/lanes/stack.h"

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// How a function's context keeps what its backward pass calls.
struct KeptSum : torch::CustomClassHolder {
  explicit KeptSum(SumOverAll call) : call(std::move(call)) {}
  SumOverAll call;
};

void keep_sum(AutogradContext* ctx, const SumOverAll& sum) {
  ctx->saved_data["sum"] = c10::IValue::make_capsule(c10::make_intrusive<KeptSum>(sum));
}

const SumOverAll& kept_sum(AutogradContext* ctx) {
  return static_cast<const KeptSum*>(ctx->saved_data["sum"].toCapsule().get())->call;
}

// Over a lane's samples and pixels: [L,C].
at::Tensor channel_sums(const at::Tensor& values) {
  return values.sum(at::IntArrayRef({1, 3, 4}));
}

// [L,C] or [L,1] to meet [L,B,C,H,W].
at::Tensor per_channel(const at::Tensor& values) {
  return values.view({values.size(0), 1, -1, 1, 1});
}

// By selection, not by multiplication: a masked NaN must vanish.
at::Tensor kept(const at::Tensor& values, const at::Tensor& mask) {
  return mask.defined() ? at::where(mask.view({mask.size(0), -1, 1, 1, 1}), values, 0) : values;
}

void move_lanes_running(const at::Tensor& running, const at::Tensor& batch, const at::Tensor& count,
                        double momentum) {
  const at::Tensor old = running.to(batch.scalar_type());
  running.copy_(at::where(count > 1, old * (1 - momentum) + batch * momentum, old));
}

struct SyncedNormFunction : torch::autograd::Function<SyncedNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                            const BatchNormCall& call, const SumOverAll& sum_over_all) {
    const MemoryFormat format = format_of(given);
    const at::Tensor x = as_lanes(given, format), &mask = call.mask;
    const at::ScalarType type = sum_type(x);
    const int64_t channels = x.size(2), pixels = x.size(3) * x.size(4);
    const at::Tensor values = x.to(type);  // [L,B,C,H,W]
    const at::Tensor own_count =
        mask.defined() ? mask.sum(at::IntArrayRef({1}), /*keepdim=*/true, type) * pixels
                       : at::full({x.size(0), 1}, static_cast<double>(x.size(1) * pixels), values.options());
    const at::Tensor sums = at::cat({channel_sums(kept(values, mask)), own_count}, 1);  // [L,C+1]
    sum_over_all(sums);
    const at::Tensor count = sums.narrow(1, channels, 1), divisor = count.clamp_min(1);  // [L,1]
    const at::Tensor is_single = count == 1;
    const at::Tensor mean =
        at::where(is_single, call.running_mean.to(type), sums.narrow(1, 0, channels) / divisor);  // [L,C]
    const at::Tensor centred = kept(values - per_channel(mean), mask);
    const at::Tensor squares = channel_sums(centred.square());
    sum_over_all(squares);
    const at::Tensor variance = at::where(is_single, call.running_var.to(type), squares / divisor);
    const at::Tensor scale = (variance + call.eps).rsqrt();
    if (call.fallbacks.defined()) call.fallbacks.add_(is_single.view({-1}));
    move_lanes_running(call.running_mean, mean, count, call.momentum);
    move_lanes_running(call.running_var, variance * (count / (count - 1).clamp_min(1)), count, call.momentum);

    at::Tensor y = centred * per_channel(scale * weight.to(type)) + per_channel(bias.to(type));
    if (residual) y.add_(*residual);
    if (call.activation == Activation::kRelu) y.relu_();
    const at::Tensor out = empty_lanes(x.sizes(), x.options(), format);
    out.copy_(kept(y, mask));
    ctx->save_for_backward(
        {x, weight, mean, scale, count, mask, call.activation == Activation::kRelu ? out : at::Tensor()});
    ctx->saved_data["residual"] = residual.has_value();
    keep_sum(ctx, sum_over_all);
    return out;
  }

  // As LaneNormFunction's, with the means over the whole batch. The parameters' gradients are of this part:
  // whoever adds gradients up over processes adds these up too.
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &scale = saved[3],
                     &count = saved[4], &mask = saved[5], &out = saved[6];
    const at::ScalarType type = mean.scalar_type();
    const MemoryFormat format = format_of(x);
    const auto laid_out = [&](const at::Tensor& values) {
      const at::Tensor made = empty_lanes(x.sizes(), x.options(), format);
      made.copy_(values);
      return made;
    };
    at::Tensor grad = grads[0].to(type);
    // <= and not >: the gradient of a NaN output passes, as torch's.
    if (out.defined()) grad = at::where(out <= 0, 0, grad);
    grad = kept(grad, mask);
    const at::Tensor normal = kept((x.to(type) - per_channel(mean)) * per_channel(scale), mask);
    const at::Tensor own_weight = channel_sums(grad * normal), own_bias = channel_sums(grad);  // [L,C]
    tensor_list results{at::Tensor(),
                        own_weight.to(weight.scalar_type()),
                        own_bias.to(weight.scalar_type()),
                        at::Tensor(),
                        at::Tensor(),
                        at::Tensor()};
    if (ctx->needs_input_grad(0)) {
      const at::Tensor sums = at::cat({own_bias, own_weight}, 1);  // [L,2C]
      kept_sum(ctx)(sums);
      // 0 where running statistics stood in for those of a single value: they are constants.
      const at::Tensor means = at::where(count == 1, 0, sums / count.clamp_min(1));
      const int64_t channels = x.size(2);
      const at::Tensor centred = grad - per_channel(means.narrow(1, 0, channels)) -
                                 normal * per_channel(means.narrow(1, channels, channels));
      results[0] = laid_out(kept(centred * per_channel(scale * weight.to(type)), mask));
    }
    if (ctx->saved_data["residual"].toBool() && ctx->needs_input_grad(3)) results[3] = laid_out(grad);
    return results;
  }
};

struct SummedFunction : torch::autograd::Function<SummedFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& own, const SumOverAll& sum_over_all) {
    keep_sum(ctx, sum_over_all);
    at::Tensor sum = own.clone(at::MemoryFormat::Contiguous);
    sum_over_all(sum);
    return sum;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    at::Tensor sum = grads[0].clone(at::MemoryFormat::Contiguous);
    kept_sum(ctx)(sum);
    return {sum, at::Tensor()};
  }
};

}  // namespace

at::Tensor synced_batch_norm2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               const BatchNormCall& call, const SumOverAll& sum_over_all) {
  if (call.mode == Mode::kEvaluate) return lane_batch_norm2d(x, weight, bias, call);
  check_stacked(x, "synced_batch_norm2d", "x");
  check_sizes(weight, {x.size(0), x.size(2)}, "synced_batch_norm2d", "weight", "[L,C]");
  check_mask(call.mask, x.size(0), x.size(1), "synced_batch_norm2d");
  TORCH_CHECK(!active_entries(x.size(0)).defined(), "synced_batch_norm2d: x: want all lanes active");
  const at::Tensor normed =
      SyncedNormFunction::apply(x, weight, bias, if_defined(call.residual), call, sum_over_all);
  switch (call.pooling) {
    case Pooling::k2x2:
      return lane_max_pool2x2(normed);
    case Pooling::k3x3:
      return lane_max_pool3x3(normed);
    case Pooling::kNone:
      break;
  }
  return normed;
}

at::Tensor batch_norm_forward(const LaneBatchNorm2d& norm, const at::Tensor& x, const BatchNormCall& call,
                              const SumOverAll& sum_over_all) {
  if (!sum_over_all) return norm.forward(x, call);
  return synced_batch_norm2d(x, norm.weight.value(), norm.bias.value(), call, sum_over_all);
}

at::Tensor summed_over_all(const at::Tensor& own, const SumOverAll& sum_over_all) {
  return SummedFunction::apply(own, sum_over_all);
}

}  // namespace espalier::lanes
