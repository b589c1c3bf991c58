#include "espalier/lanes/norm/layer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/lanes/active.h"
#include "espalier/lanes/head/pool.h"
#include "espalier/lanes/norm/cpu.h"
#include "espalier/lanes/norm/cuda.h"
#include "espalier/lanes/norm/group_cpu.h"
#include "espalier/lanes/stack.h"

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Both norms are one: a lane is seen as [B,P,G,D] (P pixels, G groups of D channels) and its statistics are
// taken over some of the axes.
enum class Over { kBatch, kGroup };

struct Norm {
  Over over = Over::kBatch;
  int64_t groups = 1;  // the channels themselves for kBatch
  Mode mode = Mode::kTrain;
  Activation activation = Activation::kNone;
  double eps = 0;
  double momentum = 0;
  at::Tensor mask;          // [L,B] bool, or undefined
  at::Tensor running_mean;  // [L,C], or undefined for kGroup
  at::Tensor running_var;   // [L,C], or undefined for kGroup
  at::Tensor fallbacks;     // [L] f64, or undefined

  at::IntArrayRef axes() const {
    static constexpr int64_t kOverBatch[] = {0, 1, 3}, kOverGroup[] = {1, 3};
    return over == Over::kBatch ? at::IntArrayRef(kOverBatch) : at::IntArrayRef(kOverGroup);
  }
};

// [B,C,H,W] as [B,P,G,D]: a view, unless a gradient comes in a foreign layout (an expanded scalar).
at::Tensor grouped(const at::Tensor& lane, int64_t groups) {
  return lane.permute({0, 2, 3, 1})
      .reshape({lane.size(0), lane.size(2) * lane.size(3), groups, lane.size(1) / groups});
}

// [B,P,G,D] into a lane [B,C,H,W].
void put(const at::Tensor& values, const at::Tensor& lane) {
  lane.permute({0, 2, 3, 1}).copy_(values.reshape({lane.size(0), lane.size(2), lane.size(3), lane.size(1)}));
}

// One lane's mask, and what it does.
struct LaneMask {
  at::Tensor valid;  // [B,1,1,1] bool, or undefined

  LaneMask(const at::Tensor& mask, int64_t lane) {
    if (mask.defined()) valid = mask.select(0, lane).view({-1, 1, 1, 1});
  }
  // By selection, not by multiplication: a masked NaN must vanish.
  at::Tensor keep(const at::Tensor& values) const {
    return valid.defined() ? at::where(valid, values, 0) : values;
  }
  // How many values a statistic is taken over: a tensor [], since the mask is on the device.
  at::Tensor count(const at::Tensor& values, const Norm& norm) const {
    const auto options = values.options();
    if (norm.over == Over::kGroup)
      return at::full({}, static_cast<double>(values.size(1) * values.size(3)), options);
    if (!valid.defined()) return at::full({}, static_cast<double>(values.size(0) * values.size(1)), options);
    return valid.sum(values.scalar_type()) * values.size(1);
  }
  // Whether a mask may leave a single value per channel, which has no variance: the running statistics then
  // stand in. Without a mask the shape tells, and the call was refused.
  bool may_be_single(const Norm& norm) const { return norm.over == Over::kBatch && valid.defined(); }
};

void move_running(const at::Tensor& running, const at::Tensor& batch, const at::Tensor& count,
                  double momentum) {
  const at::Tensor old = running.to(batch.scalar_type());
  running.copy_(at::where(count > 1, old * (1 - momentum) + batch.view_as(running) * momentum, old));
}

// Where there was none, no input has its place.
bool wants_residual(const AutogradContext* ctx) {
  return ctx->saved_data.at("residual").toBool() && ctx->needs_input_grad(3);
}

// The loop over lanes.
struct LaneNormFunction : torch::autograd::Function<LaneNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual, Norm norm) {
    const MemoryFormat format = format_of(given);
    const at::Tensor x = as_lanes(given, format);
    const at::ScalarType type = sum_type(x);
    const int64_t lanes = x.size(0), groups = norm.groups, depth = x.size(2) / groups;
    const int64_t rows = norm.over == Over::kBatch ? 1 : x.size(1);
    const at::Tensor out = empty_lanes(x.sizes(), x.options(), format);
    const at::Tensor means = empty_lanes({lanes, rows, 1, groups, 1}, x.options().dtype(type));
    const at::Tensor scales = empty_lanes({lanes, rows, 1, groups, 1}, x.options().dtype(type));
    const at::Tensor entries = active_entries(lanes);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (!is_active(entries, lane)) continue;
      const LaneMask mask(norm.mask, lane);
      const at::Tensor values = grouped(x.select(0, lane), groups).to(type);  // [B,P,G,D]
      const at::Tensor mean = means.select(0, lane), scale = scales.select(0, lane);
      at::Tensor centred;
      if (norm.mode == Mode::kEvaluate) {
        mean.copy_(norm.running_mean.select(0, lane).view({1, 1, groups, 1}));
        scale.copy_((norm.running_var.select(0, lane).to(type) + norm.eps).rsqrt().view({1, 1, groups, 1}));
        centred = values - mean;
      } else {
        const at::Tensor count = mask.count(values, norm), divisor = count.clamp_min(1);
        const at::Tensor is_single = mask.may_be_single(norm) ? count == 1 : at::Tensor();  // [] bool
        const auto unless_single = [&](const at::Tensor& batch, const at::Tensor& running) {
          return is_single.defined()
                     ? at::where(is_single, running.select(0, lane).to(type).view({1, 1, groups, 1}), batch)
                     : batch;
        };
        mean.copy_(
            unless_single(mask.keep(values).sum(norm.axes(), /*keepdim=*/true) / divisor, norm.running_mean));
        centred = mask.keep(values - mean);
        const at::Tensor variance =
            unless_single(centred.square().sum(norm.axes(), /*keepdim=*/true) / divisor, norm.running_var);
        scale.copy_((variance + norm.eps).rsqrt());
        if (is_single.defined() && norm.fallbacks.defined()) norm.fallbacks.select(0, lane).add_(is_single);
        if (norm.over == Over::kBatch) {
          move_running(norm.running_mean.select(0, lane), mean, count, norm.momentum);
          move_running(norm.running_var.select(0, lane), variance * (count / (count - 1).clamp_min(1)), count,
                       norm.momentum);
        }
      }
      at::Tensor y = centred * scale * weight.select(0, lane).to(type).view({groups, depth}) +
                     bias.select(0, lane).to(type).view({groups, depth});
      if (residual) y.add_(grouped(residual->select(0, lane), groups));
      if (norm.activation == Activation::kRelu) y.relu_();
      put(mask.keep(y), out.select(0, lane));
    }
    ctx->save_for_backward({x, weight, means, scales, norm.mask,
                            norm.activation == Activation::kRelu ? out : at::Tensor(), entries});
    ctx->saved_data["over"] = static_cast<int64_t>(norm.over);
    ctx->saved_data["groups"] = groups;
    ctx->saved_data["mode"] = static_cast<int64_t>(norm.mode);
    ctx->saved_data["residual"] = residual.has_value();
    return out;
  }

  // With g the gradient of the output (past the ReLU), z the normalised values and w the weight:
  //   weight: sum of g z, bias: sum of g;
  //   x: scale (g w - mean of g w - z mean of g w z), the means over the statistic's values; scale g w where
  //   the statistics were given, or stood in for those of a single value.
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &means = saved[2], &scales = saved[3],
                     &out = saved[5];
    Norm norm{.over = static_cast<Over>(ctx->saved_data["over"].toInt()),
              .groups = ctx->saved_data["groups"].toInt(),
              .mode = static_cast<Mode>(ctx->saved_data["mode"].toInt()),
              .mask = saved[4]};
    const at::ScalarType type = means.scalar_type();
    const int64_t groups = norm.groups, depth = x.size(2) / groups;
    const at::Tensor grad_x =
        ctx->needs_input_grad(0) ? empty_lanes(x.sizes(), x.options(), format_of(x)) : at::Tensor();
    const at::Tensor grad_weight = empty_lanes(weight.sizes(), weight.options());
    const at::Tensor grad_bias = empty_lanes(weight.sizes(), weight.options());
    const at::Tensor grad_residual =
        wants_residual(ctx) ? empty_lanes(x.sizes(), x.options(), format_of(x)) : at::Tensor();
    for (int64_t lane = 0; lane < x.size(0); ++lane) {
      if (!is_active(saved[6], lane)) continue;
      const LaneMask mask(norm.mask, lane);
      const at::Tensor scale = scales.select(0, lane);  // [1 or B,1,G,1]
      at::Tensor grad = grouped(grads[0].select(0, lane), groups).to(type);
      // <= and not >: the gradient of a NaN output passes, as torch's.
      if (out.defined()) grad = at::where(grouped(out.select(0, lane), groups) <= 0, 0, grad);
      grad = mask.keep(grad);
      if (grad_residual.defined()) put(grad, grad_residual.select(0, lane));
      const at::Tensor normal = mask.keep(
          (grouped(x.select(0, lane), groups).to(type) - means.select(0, lane)) * scale);  // [B,P,G,D]
      grad_weight.select(0, lane).copy_((grad * normal).sum(at::IntArrayRef({0, 1})).view({-1}));
      grad_bias.select(0, lane).copy_(grad.sum(at::IntArrayRef({0, 1})).view({-1}));
      if (!grad_x.defined()) continue;
      at::Tensor grad_values = grad * weight.select(0, lane).to(type).view({groups, depth});
      if (norm.mode == Mode::kTrain) {
        const at::Tensor count = mask.count(normal, norm), divisor = count.clamp_min(1);
        const auto mean_of = [&](const at::Tensor& values) {
          const at::Tensor mean = values.sum(norm.axes(), /*keepdim=*/true) / divisor;
          return mask.may_be_single(norm) ? at::where(count == 1, 0, mean) : mean;
        };
        grad_values = grad_values - mean_of(grad_values) - normal * mean_of(grad_values * normal);
      }
      put(mask.keep(grad_values * scale), grad_x.select(0, lane));
    }
    return {grad_x, grad_weight, grad_bias, grad_residual, at::Tensor()};
  }
};

// Where every sample counts, torch's own norms do a lane at a time: several times as fast as the steps above.
struct WholeNormFunction : torch::autograd::Function<WholeNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual, Norm norm) {
    const MemoryFormat format = format_of(given);
    const at::Tensor x = as_lanes(given, format), out = empty_lanes(x.sizes(), x.options(), format);
    const at::Tensor entries = active_entries(x.size(0));
    tensor_list saved{x, weight, norm.running_mean, norm.running_var, out, entries};
    for (int64_t lane = 0; lane < x.size(0); ++lane) {
      if (!is_active(entries, lane)) {
        saved.insert(saved.end(), 2, at::Tensor());
        continue;
      }
      const at::Tensor from = x.select(0, lane), w = weight.select(0, lane), b = bias.select(0, lane);
      const auto [made, mean, scale] =
          norm.over == Over::kBatch
              ? at::native_batch_norm(from, w, b, norm.running_mean.select(0, lane),
                                      norm.running_var.select(0, lane), norm.mode == Mode::kTrain,
                                      norm.momentum, norm.eps)
              : at::native_group_norm(from, w, b, from.size(0), from.size(1), from.size(2) * from.size(3),
                                      norm.groups, norm.eps);
      const at::Tensor to = out.select(0, lane);
      if (residual) made.add_(residual->select(0, lane));
      to.copy_(norm.activation == Activation::kRelu ? made.relu() : made);
      saved.insert(saved.end(), {mean, scale});
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["over"] = static_cast<int64_t>(norm.over);
    ctx->saved_data["groups"] = norm.groups;
    ctx->saved_data["mode"] = static_cast<int64_t>(norm.mode);
    ctx->saved_data["residual"] = residual.has_value();
    ctx->saved_data["relu"] = norm.activation == Activation::kRelu;
    ctx->saved_data["eps"] = norm.eps;
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &out = saved[4];
    const bool over_batch = static_cast<Over>(ctx->saved_data["over"].toInt()) == Over::kBatch;
    const bool trains = static_cast<Mode>(ctx->saved_data["mode"].toInt()) == Mode::kTrain;
    const bool wants_x = ctx->needs_input_grad(0);
    const at::Tensor grad_x = wants_x ? empty_lanes(x.sizes(), x.options(), format_of(x)) : at::Tensor();
    const at::Tensor grad_weight = empty_lanes(weight.sizes(), weight.options());
    const at::Tensor grad_bias = empty_lanes(weight.sizes(), weight.options());
    const at::Tensor grad_residual =
        wants_residual(ctx) ? empty_lanes(x.sizes(), x.options(), format_of(x)) : at::Tensor();
    const at::Tensor all = as_lanes(grads[0], format_of(x));
    for (int64_t lane = 0; lane < x.size(0); ++lane) {
      if (!is_active(saved[5], lane)) continue;
      const at::Tensor from = x.select(0, lane), w = weight.select(0, lane);
      at::Tensor grad = all.select(0, lane);
      if (ctx->saved_data["relu"].toBool()) grad = at::threshold_backward(grad, out.select(0, lane), 0);
      if (grad_residual.defined()) grad_residual.select(0, lane).copy_(grad);
      const at::Tensor &mean = saved[static_cast<size_t>(6 + 2 * lane)],
                       &scale = saved[static_cast<size_t>(7 + 2 * lane)];
      const auto [x_part, weight_part, bias_part] =
          over_batch ? at::native_batch_norm_backward(
                           grad, from, w, saved[2].select(0, lane), saved[3].select(0, lane), mean, scale,
                           trains, ctx->saved_data["eps"].toDouble(), {wants_x, true, true})
                     // x's too, wanted or not: torch 2.11 writes it in channels-last memory, asked or not.
                     : at::native_group_norm_backward(grad, from, mean, scale, w, from.size(0), from.size(1),
                                                      from.size(2) * from.size(3),
                                                      ctx->saved_data["groups"].toInt(), {true, true, true});
      if (wants_x) grad_x.select(0, lane).copy_(x_part);
      grad_weight.select(0, lane).copy_(weight_part);
      grad_bias.select(0, lane).copy_(bias_part);
    }
    return {grad_x, grad_weight, grad_bias, grad_residual, at::Tensor()};
  }
};

// What torch takes: parameters and running statistics of one type, and more than one value per channel.
bool is_whole(const at::Tensor& x, const at::Tensor& weight, const Norm& norm) {
  return x.is_cpu() && !norm.mask.defined() && x.numel() > 0 && x.size(1) * x.size(3) * x.size(4) > 1 &&
         (!norm.running_mean.defined() || norm.running_mean.scalar_type() == weight.scalar_type());
}

at::Tensor norm_by_lane(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const at::Tensor& residual, const Norm& norm) {
  const auto added = if_defined(residual);
  return is_whole(x, weight, norm) ? WholeNormFunction::apply(x, weight, bias, added, norm)
                                   : LaneNormFunction::apply(x, weight, bias, added, norm);
}

LaneParameter filled(int64_t lanes, int64_t channels, const at::TensorOptions& options, double value) {
  const LaneParameter parameter({lanes, channels}, options, c10::typeMetaToScalarType(options.dtype()));
  parameter.storage().fill_(value);
  return parameter;
}

void check(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& mask, const char* function) {
  check_stacked(x, function, "x");
  TORCH_CHECK(x.size(0) == weight.size(0) && x.size(2) == weight.size(1), function, ": x: want [",
              weight.size(0), ",B,", weight.size(1), ",H,W], got ", x.sizes());
  check_mask(mask, x.size(0), x.size(1), function);
}

}  // namespace

at::Tensor lane_batch_norm2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const BatchNormCall& call) {
  check(x, weight, call.mask, "lane_batch_norm2d");
  TORCH_CHECK(call.mode == Mode::kEvaluate || x.size(1) * x.size(3) * x.size(4) != 1,
              "lane_batch_norm2d: x: Expected more than 1 value per channel when training, got input size ",
              x.sizes(), "; use a larger batch, or Mode::kEvaluate");
  if (call.fallbacks.defined()) {
    check_sizes(call.fallbacks, {x.size(0)}, "lane_batch_norm2d", "fallbacks", "[L]");
    TORCH_CHECK(call.fallbacks.scalar_type() == at::kDouble && call.fallbacks.is_contiguous() &&
                    call.fallbacks.device() == x.device(),
                "lane_batch_norm2d: fallbacks: want Double, dense, on ", x.device(), " as x, got ",
                call.fallbacks.scalar_type(), " with strides ", call.fallbacks.strides(), " on ",
                call.fallbacks.device());
  }
  if (call.residual.defined()) {
    check_sizes(call.residual, x.sizes(), "lane_batch_norm2d", "residual", "[L,B,C,H,W]");
    TORCH_CHECK(call.residual.scalar_type() == x.scalar_type() &&
                    (x.numel() == 0 || lies_in(call.residual, format_of(x))),
                "lane_batch_norm2d: residual: want ", x.scalar_type(), " in x's memory format, got ",
                call.residual.scalar_type(), " with strides ", call.residual.strides());
    TORCH_CHECK(call.pooling == Pooling::kNone, "lane_batch_norm2d: residual: want none where it is pooled");
  }
#if ESPALIER_WITH_CUDA
  if (takes_norm_kernel(x)) return batch_norm_by_kernel(x, weight, bias, call);
#endif
  if (takes_batch_norm_cpu(x, weight, call)) return batch_norm_by_cpu(x, weight, bias, call);
  const Norm norm{.over = Over::kBatch,
                  .groups = x.size(2),
                  .mode = call.mode,
                  .activation = call.activation,
                  .eps = call.eps,
                  .momentum = call.momentum,
                  .mask = call.mask,
                  .running_mean = call.running_mean,
                  .running_var = call.running_var,
                  .fallbacks = call.fallbacks};
  const at::Tensor normed = norm_by_lane(x, weight, bias, call.residual, norm);
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

bool takes_rectified(const at::Tensor& x) {
#if ESPALIER_WITH_CUDA
  if (takes_norm_kernel(x)) return true;
#endif
  return takes_group_norm_cpu(x);
}

at::Tensor lane_group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const GroupNormCall& call) {
  check(x, weight, call.mask, "lane_group_norm");
  if (call.residual.defined()) {
    check_sizes(call.residual, x.sizes(), "lane_group_norm", "residual", "[L,B,C,H,W]");
    TORCH_CHECK(call.residual.scalar_type() == x.scalar_type() && call.residual.device() == x.device(),
                "lane_group_norm: residual: want ", x.scalar_type(), " on ", x.device(), " as x, got ",
                call.residual.scalar_type(), " on ", call.residual.device());
    TORCH_CHECK(takes_rectified(x) && call.activation == Activation::kNone && !call.mask.defined(),
                "lane_group_norm: residual: want x channels-last, on CUDA or f32 or bf16, no mask and no "
                "ReLU after it, "
                "got ",
                x.scalar_type(), " on ", x.device());
  }
#if ESPALIER_WITH_CUDA
  if (takes_norm_kernel(x)) return group_norm_by_kernel(x, weight, bias, call);
#endif
  if (takes_group_norm_cpu(x) && !call.mask.defined()) return group_norm_by_cpu(x, weight, bias, call);
  TORCH_CHECK(
      !call.is_rectified,
      "lane_group_norm: is_rectified: want x channels-last, on CUDA or f32 or bf16 without a mask, got ",
      x.scalar_type(), " on ", x.device(), " with strides ", x.strides(), "; rectify it before");
  const Norm norm{.over = Over::kGroup,
                  .groups = call.groups,
                  .activation = call.activation,
                  .eps = call.eps,
                  .mask = call.mask};
  return norm_by_lane(x, weight, bias, /*residual=*/{}, norm);
}

LaneBatchNorm2d::LaneBatchNorm2d(int64_t lanes, int64_t channels, const at::TensorOptions& options)
    : weight(filled(lanes, channels, options, 1)),
      bias(filled(lanes, channels, options, 0)),
      running_mean(zero_lanes({lanes, channels}, options)),
      running_var(zero_lanes({lanes, channels}, options).fill_(1)) {}

BatchNormCall LaneBatchNorm2d::call(Mode mode, const at::Tensor& mask) const {
  return {.mode = mode,
          .mask = mask,
          .running_mean = running_mean,
          .running_var = running_var,
          .momentum = momentum,
          .eps = eps};
}

at::Tensor LaneBatchNorm2d::forward(const at::Tensor& x, const BatchNormCall& call) const {
  return lane_batch_norm2d(x, weight.value(), bias.value(), call);
}

at::Tensor LaneBatchNorm2d::forward(const at::Tensor& x, Mode mode, const at::Tensor& mask,
                                    Activation activation, Pooling pooling) const {
  BatchNormCall made = call(mode, mask);
  made.activation = activation;
  made.pooling = pooling;
  return forward(x, made);
}

at::Tensor LaneBatchNorm2d::forward_residual(const at::Tensor& x, const at::Tensor& residual, Mode mode,
                                             const at::Tensor& mask) const {
  BatchNormCall made = call(mode, mask);
  made.activation = Activation::kRelu;
  made.residual = residual;
  return forward(x, made);
}

LaneGroupNorm::LaneGroupNorm(int64_t lanes, int64_t groups, int64_t channels,
                             const at::TensorOptions& options)
    : weight(filled(lanes, channels, options, 1)),
      bias(filled(lanes, channels, options, 0)),
      groups_(groups) {
  TORCH_CHECK(groups >= 1 && channels % groups == 0, "LaneGroupNorm: groups: want a divisor of ", channels,
              " channels, got ", groups);
}

at::Tensor LaneGroupNorm::forward(const at::Tensor& x, const at::Tensor& mask, Activation activation) const {
  return lane_group_norm(x, weight.value(), bias.value(),
                         {.groups = groups_, .mask = mask, .activation = activation, .eps = eps});
}

at::Tensor LaneGroupNorm::forward_beside(const at::Tensor& residual, const at::Tensor& x,
                                         Activation before) const {
  return lane_group_norm(
      x, weight.value(), bias.value(),
      {.groups = groups_, .eps = eps, .is_rectified = before == Activation::kRelu, .residual = residual});
}

}  // namespace espalier::lanes
