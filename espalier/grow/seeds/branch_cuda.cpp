#if ESPALIER_WITH_CUDA
#include "espalier/grow/seeds/branch_cuda.h"

#include <ATen/ops/empty.h>

#include "espalier/grow/seeds/branch_kernel.h"
#include "espalier/grow/seeds/each_lane.h"
#include "espalier/lanes/launch.h"
#include "espalier/lanes/most_lanes.h"

namespace espalier::grow {
namespace {

using lanes::stack_of;
using lanes::stream_of;

// Dense lanes in the order of `like`'s: itself, or a copy of what torch laid out.
at::Tensor as_like(const at::Tensor& tensor, const at::Tensor& like) {
  if (!tensor.defined()) return tensor;
  return like.dim() == 5 ? lanes::for_kernel(tensor, lanes::format_of(like)) : lanes::dense_lanes(tensor);
}

// Images by samples; anything else is small, and one sample per entry.
BranchArgs args_of(const at::Tensor& like, const at::Tensor& entries) {
  const int64_t batch = like.dim() == 5 ? like.size(1) : 1;
  BranchArgs args;
  args.entries = static_cast<int32_t>(like.size(0));
  args.batch = static_cast<int32_t>(batch);
  args.values = static_cast<int32_t>(like.numel() / (like.size(0) * batch));
  args.channels = like.dim() == 5 ? static_cast<int32_t>(like.size(2)) : 0;
  args.type = lanes::kernel_type(like);
  args.active = lanes::entries_of(entries);
  return args;
}

// A parameter's gradient in the type that kernels write, then in its own.
at::Tensor wide_like(const at::Tensor& parameter, const at::Tensor& x) {
  return lanes::empty_lanes(parameter.sizes(),
                            parameter.options().requires_grad(false).dtype(lanes::wide_type(x)));
}
at::Tensor in_type_of(const at::Tensor& parameter, const at::Tensor& wide) {
  if (wide.scalar_type() == parameter.scalar_type()) return wide;
  const at::Tensor narrow = stacked_like(parameter);
  narrow.copy_(wide);
  return narrow;
}

// The type of mix's partial sums: sum_t of vector_access.cuh.
at::ScalarType partial_type(const at::Tensor& x) {
  return x.element_size() >= 4 ? at::kDouble : at::kFloat;
}

}  // namespace

bool takes_branch_cuda(const at::Tensor& x) {
  return x.is_cuda() && lanes::has_kernel_type(x) && x.size(0) <= lanes::kMostLanesOnCuda &&
         (x.size(0) == 0 || x.numel() / x.size(0) < int64_t{1} << 31);
}

bool takes_scale_cuda(const at::Tensor& x) {
  return takes_branch_cuda(x) && lanes::format_of(x) == MemoryFormat::kChannelsLast;
}

at::Tensor formula_by_cuda(Formula formula, const at::Tensor& a, const at::Tensor& b, const at::Tensor& like,
                           const at::Tensor& entries) {
  const at::Tensor out = stacked_like(like);
  if (out.numel() == 0) return out;
  const c10::cuda::CUDAGuard guard(out.device());
  const at::Tensor first = as_like(a, like), second = as_like(b, like);
  BranchArgs args = args_of(out, entries);
  args.a = stack_of(first);
  args.b = stack_of(second);
  args.out = stack_of(out);
  C10_CUDA_CHECK(launch_formula(formula, args, stream_of(out)));
  return out;
}

at::Tensor mix_by_cuda(const at::Tensor& x, const at::Tensor& y, const at::Tensor& t,
                       const at::Tensor& entries) {
  const at::Tensor out = stacked_like(x);
  if (out.numel() == 0) return out;
  const c10::cuda::CUDAGuard guard(out.device());
  const at::Tensor a = as_like(x, x), b = as_like(y, x), factor = lanes::as_wide(t, lanes::wide_type(x));
  MixArgs args{.branches = args_of(x, entries), .t = stack_of(factor)};
  args.branches.a = stack_of(a);
  args.branches.b = stack_of(b);
  args.branches.out = stack_of(out);
  C10_CUDA_CHECK(launch_mix_forward(args, stream_of(out)));
  return out;
}

std::array<at::Tensor, 3> mix_backward_by_cuda(const at::Tensor& grad, const at::Tensor& x,
                                               const at::Tensor& y, const at::Tensor& t,
                                               const at::Tensor& entries) {
  const at::Tensor grad_x = stacked_like(x), grad_y = stacked_like(x), grad_t = wide_like(t, x);
  if (x.numel() == 0) return {grad_x, grad_y, in_type_of(t, grad_t.zero_())};
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor a = as_like(x, x), b = as_like(y, x), sent = as_like(grad, x),
                   factor = lanes::as_wide(t, lanes::wide_type(x));
  const at::Tensor partial = at::empty({x.size(0), x.size(1)}, x.options().dtype(partial_type(x)));
  MixArgs args{.branches = args_of(x, entries),
               .t = stack_of(factor),
               .grad_x = stack_of(grad_x),
               .grad_y = stack_of(grad_y),
               .grad_t = stack_of(grad_t),
               .partial = partial.mutable_data_ptr()};
  args.branches.a = stack_of(a);
  args.branches.b = stack_of(b);
  args.branches.out = stack_of(sent);
  C10_CUDA_CHECK(launch_mix_backward(args, stream_of(x)));
  return {grad_x, grad_y, in_type_of(t, grad_t)};
}

at::Tensor scale_by_cuda(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& entries) {
  const at::Tensor out = stacked_like(x);
  if (out.numel() == 0) return out;
  const c10::cuda::CUDAGuard guard(out.device());
  const at::Tensor a = as_like(x, x),
                   factors = lanes::dense_lanes(lanes::as_wide(scale, lanes::wide_type(x)));
  ScaleArgs args{.branches = args_of(x, entries), .scale = stack_of(factors)};
  args.branches.a = stack_of(a);
  args.branches.out = stack_of(out);
  C10_CUDA_CHECK(launch_scale_forward(args, stream_of(out)));
  return out;
}

std::array<at::Tensor, 2> scale_backward_by_cuda(const at::Tensor& grad, const at::Tensor& x,
                                                 const at::Tensor& scale, const at::Tensor& entries) {
  const at::Tensor grad_x = stacked_like(x), grad_scale = wide_like(scale, x);
  if (x.numel() == 0) return {grad_x, in_type_of(scale, grad_scale.zero_())};
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor a = as_like(x, x), sent = as_like(grad, x),
                   factors = lanes::dense_lanes(lanes::as_wide(scale, lanes::wide_type(x)));
  ScaleArgs args{.branches = args_of(x, entries),
                 .scale = stack_of(factors),
                 .grad_x = stack_of(grad_x),
                 .grad_scale = stack_of(grad_scale)};
  args.branches.a = stack_of(a);
  args.branches.out = stack_of(sent);
  C10_CUDA_CHECK(launch_scale_backward(args, stream_of(x)));
  return {grad_x, in_type_of(scale, grad_scale)};
}

}  // namespace espalier::grow
#endif  // ESPALIER_WITH_CUDA
