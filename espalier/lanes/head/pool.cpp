#include "espalier/lanes/head/pool.h"

#include <ATen/ops/div.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/mean.h>
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

#if ESPALIER_WITH_CUDA
bool takes_kernel(const at::Tensor& x) {
  return x.is_cuda() && has_kernel_type(x) && format_of(x) == MemoryFormat::kChannelsLast &&
         (x.size(0) == 0 || x.numel() / x.size(0) < int64_t{1} << 31);
}

PoolArgs pool_args(at::IntArrayRef sizes, const at::Tensor& like, const at::Tensor& entries) {
  PoolArgs args;
  args.lanes = static_cast<int32_t>(sizes[0]);
  args.batch = static_cast<int32_t>(sizes[1]);
  args.channels = static_cast<int32_t>(sizes[2]);
  args.height = static_cast<int32_t>(sizes[3]);
  args.width = static_cast<int32_t>(sizes[4]);
  args.type = kernel_type(like);
  args.entries = entries_of(entries);
  return args;
}

struct MaxPoolKernelFunction : torch::autograd::Function<MaxPoolKernelFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const c10::cuda::CUDAGuard guard(given.device());
    const at::Tensor x = for_kernel(given), entries = active_entries(x.size(0));
    const at::Tensor out =
        empty_lanes({x.size(0), x.size(1), x.size(2), x.size(3) / 2, x.size(4) / 2}, x.options());
    PoolArgs args = pool_args(x.sizes(), x, entries);
    args.x = stack_of(x);
    args.out = stack_of(out);
    if (out.numel() > 0) C10_CUDA_CHECK(launch_max_pool_forward(args, stream_of(x)));
    ctx->save_for_backward({x, entries});
    return out;
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const c10::cuda::CUDAGuard guard(x.device());
    const at::Tensor grad = for_kernel(grads[0]), grad_x = empty_lanes(x.sizes(), x.options());
    PoolArgs args = pool_args(x.sizes(), x, saved[1]);
    args.x = stack_of(x);
    args.out = stack_of(grad);
    args.grad_x = stack_of(grad_x);
    if (x.numel() > 0) C10_CUDA_CHECK(launch_max_pool_backward(args, stream_of(x)));
    return {grad_x};
  }
};

struct AveragePoolKernelFunction : torch::autograd::Function<AveragePoolKernelFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given) {
    const c10::cuda::CUDAGuard guard(given.device());
    const at::Tensor x = for_kernel(given), entries = active_entries(x.size(0));
    const at::Tensor out = empty_lanes({x.size(0), x.size(1), x.size(2)}, x.options());
    PoolArgs args = pool_args(x.sizes(), x, entries);
    args.x = stack_of(x);
    args.out = stack_of(out);
    if (out.numel() > 0) C10_CUDA_CHECK(launch_average_pool_forward(args, stream_of(x)));
    ctx->saved_data["sizes"] = x.sizes();
    ctx->save_for_backward({entries});
    return out;
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    const c10::cuda::CUDAGuard guard(grads[0].device());
    const at::Tensor grad = dense_lanes(grads[0]), grad_x = empty_lanes(sizes, grads[0].options());
    PoolArgs args = pool_args(sizes, grad, ctx->get_saved_variables()[0]);
    args.out = stack_of(grad);
    args.grad_x = stack_of(grad_x);
    if (grad_x.numel() > 0) C10_CUDA_CHECK(launch_average_pool_backward(args, stream_of(grad)));
    return {grad_x};
  }
};
#endif

// size: 2 without padding, or 3 with a pixel of it; windows are two pixels apart.
struct LaneMaxPoolFunction : torch::autograd::Function<LaneMaxPoolFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, int64_t size) {
    const MemoryFormat format = format_of(given);
    const at::Tensor x = as_lanes(given, format);
    const int64_t padding = size / 3;
    const std::array<int64_t, 5> sizes{x.size(0), x.size(1), x.size(2), (x.size(3) + padding) / 2,
                                       (x.size(4) + padding) / 2};
    const at::Tensor out = empty_lanes(sizes, x.options(), format);
    const at::Tensor places = empty_lanes(sizes, x.options().dtype(at::kLong), format);
    const at::Tensor entries = active_entries(x.size(0));
    for (int64_t lane = 0; lane < x.size(0); ++lane) {
      if (!is_active(entries, lane)) continue;
      at::Tensor to = out.select(0, lane), to_places = places.select(0, lane);
      at::max_pool2d_with_indices_out(to, to_places, x.select(0, lane), {size, size}, {2, 2},
                                      {padding, padding});
    }
    ctx->saved_data["size"] = size;
    ctx->save_for_backward({x, places, entries});
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &places = saved[1];
    const int64_t size = ctx->saved_data["size"].toInt(), padding = size / 3;
    const at::Tensor grad_x = empty_lanes(x.sizes(), x.options(), format_of(x));
    for (int64_t lane = 0; lane < x.size(0); ++lane) {
      if (!is_active(saved[2], lane)) continue;
      at::Tensor to = grad_x.select(0, lane);
      at::max_pool2d_with_indices_backward_out(to, grads[0].select(0, lane), x.select(0, lane), {size, size},
                                               {2, 2}, {padding, padding}, {1, 1}, /*ceil_mode=*/false,
                                               places.select(0, lane));
    }
    return {grad_x, at::Tensor()};
  }
};

struct LaneAveragePoolFunction : torch::autograd::Function<LaneAveragePoolFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->saved_data["sizes"] = x.sizes();
    ctx->saved_data["contiguous"] = format_of(x) == MemoryFormat::kContiguous;
    const at::Tensor out = empty_lanes({x.size(0), x.size(1), x.size(2)}, x.options());
    const at::Tensor entries = active_entries(x.size(0));
    for (int64_t lane = 0; lane < x.size(0); ++lane) {
      if (!is_active(entries, lane)) continue;
      at::Tensor to = out.select(0, lane);
      at::mean_out(to, x.select(0, lane), at::IntArrayRef({2, 3}));
    }
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    const at::Tensor grad_x = empty_lanes(
        sizes, grads[0].options(),
        ctx->saved_data["contiguous"].toBool() ? MemoryFormat::kContiguous : MemoryFormat::kChannelsLast);
    // Elementwise, so all lanes at once: each value is one division, whatever its neighbours.
    grad_x.copy_((grads[0] / (sizes[3] * sizes[4])).unsqueeze(-1).unsqueeze(-1).expand(sizes));
    return {grad_x};
  }
};

}  // namespace

at::Tensor lane_max_pool2x2(const at::Tensor& x) {
  check_stacked(x, "lane_max_pool2x2", "x");
  TORCH_CHECK(x.size(3) >= 2 && x.size(4) >= 2, "lane_max_pool2x2: x: want at least 2 x 2 pixels, got ",
              x.sizes());
#if ESPALIER_WITH_CUDA
  if (takes_kernel(x)) return MaxPoolKernelFunction::apply(x);
#endif
  return LaneMaxPoolFunction::apply(x, /*size=*/2);
}

at::Tensor lane_max_pool3x3(const at::Tensor& x) {
  check_stacked(x, "lane_max_pool3x3", "x");
  return LaneMaxPoolFunction::apply(x, /*size=*/3);
}

at::Tensor lane_global_average_pool(const at::Tensor& x) {
  check_stacked(x, "lane_global_average_pool", "x");
#if ESPALIER_WITH_CUDA
  if (takes_kernel(x)) return AveragePoolKernelFunction::apply(x);
#endif
  return LaneAveragePoolFunction::apply(x);
}

}  // namespace espalier::lanes
