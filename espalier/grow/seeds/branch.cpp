#include "espalier/grow/seeds/branch.h"

#include <ATen/ops/add.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/grow/seeds/each_lane.h"
#include "espalier/lanes/active.h"
#if ESPALIER_WITH_CUDA
#include "espalier/grow/seeds/branch_cuda.h"
#endif

namespace espalier::grow {
namespace {

using lanes::active_entries;
using lanes::check_sizes;
using lanes::check_stacked;
using lanes::sum_type;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// x + y, stacked as x is.
at::Tensor sum_of(const at::Tensor& x, const at::Tensor& y, const at::Tensor& entries) {
#if ESPALIER_WITH_CUDA
  if (takes_branch_cuda(x)) return formula_by_cuda(Formula::kSum, x, y, x, entries);
#endif
  const at::Tensor sum = stacked_like(x);
  each_lane(x, entries, [&](auto cut) {
    at::Tensor to = cut(sum);
    at::add_out(to, cut(x), cut(y));
  });
  return sum;
}

struct ForkFunction : torch::autograd::Function<ForkFunction> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({active_entries(x.size(0))});
    return {same(x), same(x)};
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    if (!grads[0].defined()) return {grads[1]};
    if (!grads[1].defined()) return {grads[0]};
    return {sum_of(grads[0], grads[1], ctx->get_saved_variables()[0])};
  }
};

struct ResidualFunction : torch::autograd::Function<ResidualFunction> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const at::Tensor& y) {
    return sum_of(x, y, active_entries(x.size(0)));
  }

  static tensor_list backward(AutogradContext*, const tensor_list& grads) { return {grads[0], grads[0]}; }
};

struct MixFunction : torch::autograd::Function<MixFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& y,
                            const at::Tensor& t) {
    const at::Tensor entries = active_entries(x.size(0));
    ctx->save_for_backward({x, y, t, entries});
#if ESPALIER_WITH_CUDA
    if (takes_branch_cuda(x)) return mix_by_cuda(x, y, t, entries);
#endif
    at::Tensor out = stacked_like(x);
    each_lane(x, entries, [&](auto cut) {
      const at::Tensor from = wide(cut(x));
      cut(out).copy_(from + lanes::per_lane(cut(t).select(1, 0), from) * (wide(cut(y)) - from));
    });
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &y = saved[1], &t = saved[2];
#if ESPALIER_WITH_CUDA
    if (takes_branch_cuda(x)) {
      const auto [grad_x, grad_y, grad_t] = mix_backward_by_cuda(grads[0], x, y, t, saved[3]);
      return {grad_x, grad_y, grad_t};
    }
#endif
    const at::Tensor grad_x = stacked_like(x), grad_y = stacked_like(y), grad_t = stacked_like(t);
    each_lane(x, saved[3], [&](auto cut) {
      const at::Tensor grad = wide(cut(grads[0]));
      const at::Tensor factor = lanes::per_lane(cut(t).select(1, 0), grad);
      cut(grad_x).copy_(grad * (1 - factor));
      cut(grad_y).copy_(grad * factor);
      const auto type = sum_type(x);
      cut(grad_t).copy_((grad.to(type) * (cut(y).to(type) - cut(x).to(type))).sum({1, 2, 3, 4}).unsqueeze(1));
    });
    return {grad_x, grad_y, grad_t};
  }
};

struct ScaleFunction : torch::autograd::Function<ScaleFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& scale) {
    const at::Tensor entries = active_entries(x.size(0));
    ctx->save_for_backward({x, scale, entries});
#if ESPALIER_WITH_CUDA
    if (takes_scale_cuda(x)) return scale_by_cuda(x, scale, entries);
#endif
    at::Tensor out = stacked_like(x);
    each_lane(x, entries,
              [&](auto cut) { cut(out).copy_(wide(cut(x)) * wide(cut(scale)).unsqueeze(-1).unsqueeze(-1)); });
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &scale = saved[1];
#if ESPALIER_WITH_CUDA
    if (takes_scale_cuda(x)) {
      const auto [grad_x, grad_scale] = scale_backward_by_cuda(grads[0], x, scale, saved[2]);
      return {grad_x, grad_scale};
    }
#endif
    const at::Tensor grad_x = stacked_like(x), grad_scale = stacked_like(scale);
    each_lane(x, saved[2], [&](auto cut) {
      const at::Tensor grad = wide(cut(grads[0]));
      cut(grad_x).copy_(grad * wide(cut(scale)).unsqueeze(-1).unsqueeze(-1));
      const auto type = sum_type(x);
      cut(grad_scale).copy_((grad.to(type) * cut(x).to(type)).sum({3, 4}));
    });
    return {grad_x, grad_scale};
  }
};

struct CurveFunction : torch::autograd::Function<CurveFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, Curve curve) {
    const at::Tensor entries = active_entries(x.size(0));
    const at::Tensor out = value_of(x, curve, entries);
    ctx->save_for_backward({out, entries});
    ctx->saved_data["curve"] = static_cast<int64_t>(curve);
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto curve = static_cast<Curve>(ctx->saved_data["curve"].toInt());
    const auto saved = ctx->get_saved_variables();
    return {times_slope(grads[0], saved[0], curve, saved[1]), at::Tensor()};
  }

 private:
  static at::Tensor value_of(const at::Tensor& x, Curve curve, const at::Tensor& entries) {
#if ESPALIER_WITH_CUDA
    if (takes_branch_cuda(x)) {
      const Formula formula = curve == Curve::kRelu      ? Formula::kRelu
                              : curve == Curve::kSigmoid ? Formula::kSigmoid
                                                         : Formula::kTanh;
      return formula_by_cuda(formula, x, {}, x, entries);
    }
#endif
    at::Tensor out = stacked_like(x);
    each_lane(x, entries, [&](auto cut) {
      at::Tensor to = cut(out);
      if (curve == Curve::kRelu) at::relu_out(to, cut(x));
      if (curve == Curve::kSigmoid) at::sigmoid_out(to, cut(x));
      if (curve == Curve::kTanh) at::tanh_out(to, cut(x));
    });
    return out;
  }

  static at::Tensor times_slope(const at::Tensor& grad, const at::Tensor& out, Curve curve,
                                const at::Tensor& entries) {
#if ESPALIER_WITH_CUDA
    if (takes_branch_cuda(out)) {
      const Formula formula = curve == Curve::kRelu      ? Formula::kWhereOutput
                              : curve == Curve::kSigmoid ? Formula::kSigmoidSlope
                                                         : Formula::kTanhSlope;
      return formula_by_cuda(formula, grad, out, out, entries);
    }
#endif
    at::Tensor grad_x = stacked_like(out);
    each_lane(out, entries, [&](auto cut) {
      at::Tensor to = cut(grad_x);
      if (curve == Curve::kRelu) at::threshold_backward_out(to, cut(grad), cut(out), 0);
      if (curve == Curve::kSigmoid) at::sigmoid_backward_out(to, cut(grad), cut(out));
      if (curve == Curve::kTanh) at::tanh_backward_out(to, cut(grad), cut(out));
    });
    return grad_x;
  }
};

void check_branch(const at::Tensor& y, const at::Tensor& x, const char* function) {
  check_sizes(y, x.sizes(), function, "y", "[E,B,C,H,W]");
  TORCH_CHECK(y.scalar_type() == x.scalar_type(), function, ": y: want ", x.scalar_type(), " as x, got ",
              y.scalar_type());
}

}  // namespace

std::pair<at::Tensor, at::Tensor> lane_fork(const at::Tensor& x) {
  const tensor_list both = ForkFunction::apply(x);
  return {both[0], both[1]};
}

at::Tensor lane_residual(const at::Tensor& x, const at::Tensor& y) {
  check_stacked(x, "lane_residual", "x");
  check_branch(y, x, "lane_residual");
  return ResidualFunction::apply(x, y);
}

at::Tensor lane_mix(const at::Tensor& x, const at::Tensor& y, const at::Tensor& t) {
  check_stacked(x, "lane_mix", "x");
  check_branch(y, x, "lane_mix");
  check_sizes(t, {x.size(0), 1}, "lane_mix", "t", "[E,1]");
  return MixFunction::apply(x, y, t);
}

at::Tensor lane_scale(const at::Tensor& x, const at::Tensor& scale) {
  check_stacked(x, "lane_scale", "x");
  check_sizes(scale, x.sizes().slice(0, 3), "lane_scale", "scale", "[E,B,C]");
  return ScaleFunction::apply(x, scale);
}

at::Tensor lane_curve(const at::Tensor& x, Curve curve) {
  return CurveFunction::apply(x, curve);
}

}  // namespace espalier::grow
