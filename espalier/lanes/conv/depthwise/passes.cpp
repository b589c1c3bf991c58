#if ESPALIER_WITH_CUDA
#include "espalier/lanes/conv/depthwise/passes.h"

#include <ATen/ops/empty.h>

#include "espalier/lanes/conv/depthwise/kernel.h"
#include "espalier/lanes/launch.h"
#include "espalier/lanes/most_lanes.h"

namespace espalier::lanes {

bool takes_depthwise_cuda(const at::Tensor& x, const at::Tensor& weight, const ConvGeometry& geometry) {
  const int64_t channels = x.size(2);
  // With padding the output may be the larger one, by up to two pixels a side.
  const int64_t pixels = x.size(1) * (x.size(3) + 2) * (x.size(4) + 2);
  return x.is_cuda() && has_kernel_type(x) && channels > 1 && channels <= kMostDepthwiseChannels &&
         geometry.groups == channels && weight.size(1) == channels && weight.size(3) == 3 &&
         weight.size(4) == 3 && geometry.stride == 1 && geometry.padding <= 2 &&
         x.size(0) <= kMostLanesOnCuda && pixels * channels < int64_t{1} << 31;
}

void depthwise_by_cuda(ConvPass pass, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out,
                       const at::Tensor& bias, const ConvGeometry& geometry, const at::Tensor& entries) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor images = pass == ConvPass::kData ? x : for_kernel(x);
  const at::Tensor outputs = pass == ConvPass::kForward ? out : for_kernel(out);
  const auto size = [](const at::Tensor& tensor, int64_t axis) {
    return static_cast<int32_t>(tensor.size(axis));
  };
  DepthwiseArgs args{.lanes = size(x, 0),
                     .batch = size(x, 1),
                     .channels = size(x, 2),
                     .height = size(x, 3),
                     .width = size(x, 4),
                     .out_height = size(out, 3),
                     .out_width = size(out, 4),
                     .padding = static_cast<int32_t>(geometry.padding),
                     .type = kernel_type(x),
                     .entries = entries_of(entries),
                     .x = stack_of(images),
                     .out = stack_of(outputs)};
  const cudaStream_t stream = stream_of(x);
  if (pass != ConvPass::kWeight) {
    const at::Tensor filters = for_kernel(weight);
    const at::Tensor own_bias =
        bias.defined() ? dense_lanes(as_wide(bias, wide_type(x))) : at::Tensor();  // [L,C]
    args.weight = stack_of(filters);
    args.bias = stack_of(own_bias);
    C10_CUDA_CHECK(pass == ConvPass::kForward ? launch_depthwise_forward(args, stream)
                                              : launch_depthwise_backward_data(args, stream));
    return;
  }
  const auto wide = wide_type(x);
  const bool is_wide = weight.scalar_type() == wide;
  const at::Tensor to = is_wide ? weight : empty_lanes(weight.sizes(), weight.options().dtype(wide));
  const auto sums = x.element_size() == 2 ? at::kFloat : at::kDouble;
  const at::Tensor partial = at::empty({depthwise_partials(args)}, x.options().dtype(sums));
  args.grad_weight = stack_of(to);
  args.partial = partial.mutable_data_ptr();
  C10_CUDA_CHECK(launch_depthwise_backward_weight(args, stream));
  if (!is_wide) weight.copy_(to);
}

}  // namespace espalier::lanes
#endif  // ESPALIER_WITH_CUDA
