#if ESPALIER_WITH_CUDA
#include "espalier/lanes/conv/job.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include "espalier/lanes/conv/fold.h"
#include "espalier/lanes/conv/kernel.h"
#include "espalier/lanes/launch.h"

namespace espalier::lanes {
namespace {

// A plan's, over all branches: plans of memory count on little.
constexpr int64_t kMostWorkspaceBytes = 64LL << 20;

const char* name_of(ConvPass pass) {
  return pass == ConvPass::kForward ? "forward" : pass == ConvPass::kData ? "data" : "weight";
}

// A job's sizes as kernels count them: in 32 bits.
std::optional<ConvSizes> kernel_sizes(const ConvJob& job) {
  const at::Tensor &x = job.x, &out = job.out;
  if ((x.scalar_type() != at::kBFloat16 && x.scalar_type() != at::kHalf) || job.geometry.groups != 1)
    return std::nullopt;
  const int64_t pixels = x.size(1) * std::max(x.size(3) * x.size(4), out.size(3) * out.size(4));
  if (pixels * std::max(x.size(2), out.size(2)) >= int64_t{1} << 31) return std::nullopt;
  const auto size = [](const at::Tensor& tensor, int64_t axis) {
    return static_cast<int32_t>(tensor.size(axis));
  };
  return ConvSizes{.lanes = size(x, 0),
                   .batch = size(x, 1),
                   .channels = size(x, 2),
                   .height = size(x, 3),
                   .width = size(x, 4),
                   .filters = size(job.weight, 1),
                   .out_height = size(out, 3),
                   .out_width = size(out, 4),
                   .kernel = size(job.weight, 3),
                   .stride = static_cast<int32_t>(job.geometry.stride),
                   .padding = static_cast<int32_t>(job.geometry.padding)};
}

// The kernel of all lanes, where it takes the job.
std::optional<ConvArgs> kernel_args(const ConvJob& job) {
  const at::Tensor &x = job.x, &out = job.out;
  const std::optional<ConvSizes> sizes = kernel_sizes(job);
  if (!sizes) return std::nullopt;
  ConvArgs args;
  args.sizes = *sizes;
  if (!takes_vector(args.sizes) && (job.pass == ConvPass::kData || !takes_narrow(args.sizes)))
    return std::nullopt;
  args.type = kernel_type(x);
  args.entries = entries_of(job.entries);
  args.x = stack_of(x);
  args.out = stack_of(out);
  return args;
}

void run_kernel(const ConvJob& job, ConvArgs args) {
  const cudaStream_t stream = stream_of(job.x);
  if (job.pass != ConvPass::kWeight) {
    args.weight = stack_of(job.weight);
    const at::Tensor bias = job.bias.defined() ? dense_rows(as_wide(job.bias, at::kFloat)) : at::Tensor();
    if (bias.defined()) {
      args.bias = bias.const_data_ptr<float>();
      args.bias_stride = bias.stride(0);
    }
    C10_CUDA_CHECK(job.pass == ConvPass::kForward ? launch_conv_forward(args, stream)
                                                  : launch_conv_backward_data(args, stream));
    return;
  }
  const auto options = job.x.options().dtype(at::kFloat);
  const bool is_wide = job.weight.scalar_type() == at::kFloat;
  const at::Tensor to = is_wide ? job.weight : empty_lanes(job.weight.sizes(), options);
  const at::Tensor partial = at::empty({conv_weight_partials(args.sizes)}, options);
  args.grad_weight = to.mutable_data_ptr<float>();
  args.grad_weight_stride = to.stride(0);
  args.partial = partial.mutable_data_ptr<float>();
  C10_CUDA_CHECK(launch_conv_backward_weight(args, stream));
  if (!is_wide) job.weight.copy_(to);
}

CudnnProblem problem_of(const ConvJob& job, KernelType result) {
  return {.pass = job.pass,
          .batch = job.x.size(1),
          .channels = job.x.size(2),
          .height = job.x.size(3),
          .width = job.x.size(4),
          .filters = job.weight.size(1),
          .out_height = job.out.size(3),
          .out_width = job.out.size(4),
          .kernel = job.weight.size(3),
          .stride = job.geometry.stride,
          .padding = job.geometry.padding,
          .groups = job.geometry.groups,
          .type = kernel_type(job.x),
          .result = result};
}

int64_t workspace_of_branch(const CudnnPlan& plan) {
  return (plan.workspace_bytes() + 255) / 256 * 256;
}
int64_t workspace_of(const CudnnPlan& plan, int64_t lanes) {
  return std::min<int64_t>(CudnnBranches::kBranches, lanes) * workspace_of_branch(plan);
}

void run_cudnn(const ConvJob& job, const ConvWay& way) {
  // The weight's gradient comes in the type that the plan writes.
  const at::ScalarType written = way.result == kernel_type(job.x) ? job.x.scalar_type() : at::kFloat;
  const bool is_own = job.pass != ConvPass::kWeight || job.weight.scalar_type() == written;
  const at::Tensor weight =
      is_own ? job.weight : empty_lanes(job.weight.sizes(), job.weight.options().dtype(written));
  const int64_t bytes = workspace_of_branch(*way.plan);
  const at::Tensor workspace =
      at::empty({workspace_of(*way.plan, job.x.size(0))}, job.x.options().dtype(at::kByte));
  CudnnBranches& branches = CudnnBranches::for_device(job.x.device().index());
  const cudaStream_t stream = stream_of(job.x);
  const auto at_lane = [](const at::Tensor& tensor, int64_t lane) {
    return tensor.select(0, lane).data_ptr();
  };
  branches.fork(stream);
  for (int64_t lane = 0; lane < job.x.size(0); ++lane) {
    const int branch = static_cast<int>(lane % CudnnBranches::kBranches);
    branches.run(branch, *way.plan, at_lane(job.x, lane), at_lane(weight, lane), at_lane(job.out, lane),
                 static_cast<uint8_t*>(workspace.data_ptr()) + branch * bytes);
  }
  branches.join(stream);
  if (!is_own && job.weight.scalar_type() == at::kFloat) {
    C10_CUDA_CHECK(launch_widen_weight(kernel_type(weight), static_cast<int>(weight.size(0)),
                                       static_cast<int>(weight.numel() / weight.size(0)), stack_of(weight),
                                       job.weight.mutable_data_ptr<float>(), job.weight.stride(0), stream));
  } else if (!is_own) {
    job.weight.copy_(weight);
  }
  if (job.pass == ConvPass::kForward && job.bias.defined())
    job.out.add_(job.bias.to(job.out.scalar_type()).view({job.out.size(0), 1, job.out.size(2), 1, 1}));
}

// A convolution of single pixels, none skipped, is one matrix product per lane.
bool is_product(const ConvJob& job) {
  return job.weight.size(3) == 1 && job.geometry.stride == 1 && job.geometry.padding == 0 &&
         job.geometry.groups == 1 && !job.bias.defined() && !job.entries.defined();
}

// A lane [B,C,H,W] as rows of channels, one per pixel: [B*H*W,C], a view.
at::Tensor rows_of(const at::Tensor& stacked, int64_t lane) {
  return stacked.select(0, lane).permute({0, 2, 3, 1}).view({-1, stacked.size(2)});
}

void run_products(const ConvJob& job) {
  for (int64_t lane = 0; lane < job.x.size(0); ++lane) {
    at::Tensor x = rows_of(job.x, lane), out = rows_of(job.out, lane);
    at::Tensor weight = job.weight.select(0, lane).flatten(1);  // [K,C]
    switch (job.pass) {
      case ConvPass::kForward:
        at::mm_out(out, x, weight.t());
        break;
      case ConvPass::kData:
        at::mm_out(x, out, weight);
        break;
      case ConvPass::kWeight:
        at::mm_out(weight, out.t(), x, weight.scalar_type());
        break;
    }
  }
}

// How the job is folded, where that is possible.
std::optional<ConvFold> fold_of(const ConvJob& job) {
  const std::optional<ConvSizes> sizes = kernel_sizes(job);
  if (job.pass == ConvPass::kData || !sizes || !takes_fold(*sizes)) return std::nullopt;
  return fold_of(*sizes);
}

void run_folded(const ConvJob& job, const ConvFold& fold) {
  const cudaStream_t stream = stream_of(job.x);
  const ConvSizes& sizes = fold.sizes;
  ConvJob inner = job;
  inner.geometry = {};
  inner.x =
      empty_lanes({sizes.lanes, sizes.batch, sizes.channels, sizes.height, sizes.width}, job.x.options());
  inner.weight = empty_lanes({sizes.lanes, sizes.filters, sizes.channels, sizes.kernel, sizes.kernel},
                             job.weight.options());
  C10_CUDA_CHECK(launch_fold_images(fold, stack_of(job.x), stack_of(inner.x), stream));
  const KernelType type = kernel_type(job.weight);
  if (job.pass == ConvPass::kForward)
    C10_CUDA_CHECK(launch_fold_weight(fold, type, stack_of(job.weight), stack_of(inner.weight), stream));
  run(inner, way_for(inner));
  if (job.pass == ConvPass::kWeight)
    C10_CUDA_CHECK(launch_unfold_weight(fold, type, stack_of(inner.weight), stack_of(job.weight), stream));
}

}  // namespace

std::string ConvWay::text(ConvPass pass) const {
  switch (by) {
    case By::kLanes:
      return "lanes";
    case By::kProducts:
      return "products";
    case By::kFolded:
      return "folded";
    case By::kCudnn:
      break;
  }
  const bool is_narrow =
      pass == ConvPass::kWeight && result != KernelType::kF32 && result != KernelType::kF64;
  return fmt::format("cudnn {}{}", plan->place(), is_narrow ? " narrow" : "");
}

std::string key_of(const ConvJob& job) {
  return fmt::format("{} {}x{}x{}x{}x{} {} filters {}x{} stride {} padding {} groups {} {}",
                     name_of(job.pass), job.x.size(0), job.x.size(1), job.x.size(2), job.x.size(3),
                     job.x.size(4), job.weight.size(1), job.weight.size(3), job.weight.size(4),
                     job.geometry.stride, job.geometry.padding, job.geometry.groups,
                     c10::toString(job.x.scalar_type()));
}

std::vector<ConvWay> own_ways(const ConvJob& job) {
  std::vector<ConvWay> ways;
  if (kernel_args(job)) ways.push_back({.by = ConvWay::By::kLanes});
  if (fold_of(job)) ways.push_back({.by = ConvWay::By::kFolded});
  if (is_product(job)) ways.push_back({.by = ConvWay::By::kProducts});
  return ways;
}

std::vector<ConvWay> cudnn_ways(const ConvJob& job, int most) {
  std::vector<ConvWay> ways;
  std::vector<KernelType> results{kernel_type(job.x)};
  if (job.pass == ConvPass::kWeight && job.x.element_size() == 2)
    results = {KernelType::kF32, kernel_type(job.x)};
  for (const KernelType result : results) {
    int taken = 0;
    for (auto& plan : cudnn_plans(problem_of(job, result), 2 * most)) {
      if (!plan->is_deterministic() || workspace_of(*plan, job.x.size(0)) > kMostWorkspaceBytes) continue;
      if (taken++ < most) ways.push_back({ConvWay::By::kCudnn, std::move(plan), result});
    }
  }
  return ways;
}

void run(const ConvJob& job, const ConvWay& way) {
  switch (way.by) {
    case ConvWay::By::kLanes:
      return run_kernel(job, *kernel_args(job));
    case ConvWay::By::kProducts:
      return run_products(job);
    case ConvWay::By::kFolded:
      return run_folded(job, *fold_of(job));
    case ConvWay::By::kCudnn:
      return run_cudnn(job, way);
  }
}

}  // namespace espalier::lanes
#endif
