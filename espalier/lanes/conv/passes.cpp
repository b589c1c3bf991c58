// Channels-last stacks have passes of their own: all of narrow types on CUDA (choose.h), depthwise
// ones of any type there (depthwise/passes.h), the weights' gradient on the CPU (cpu/weight.h).
// Everything else: a loop over lanes, without TF32, since fp32 means fp32; ATen's convolutions and their
// gradients return tensors of their own, so each is copied into its slice of the stacked result.
#include "espalier/lanes/conv/passes.h"

#include <ATen/Context.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <array>

#include "espalier/lanes/active.h"
#include "espalier/lanes/conv/cpu/weight.h"
#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include "espalier/lanes/conv/choose.h"
#include "espalier/lanes/conv/depthwise/passes.h"
#endif

namespace espalier::lanes {
namespace {

// What all passes of our own ask: they read and write every tensor in this order.
bool all_channels_last(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out) {
  return lies_in(x, MemoryFormat::kChannelsLast) && lies_in(weight, MemoryFormat::kChannelsLast) &&
         lies_in(out, MemoryFormat::kChannelsLast);
}

// One lane's gradients, of x and of the weight as wanted.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lane_gradients(const at::Tensor& grad, const at::Tensor& x,
                                                              const at::Tensor& weight,
                                                              const ConvGeometry& geometry,
                                                              std::array<bool, 3> wanted) {
  const at::NoTF32Guard exact;
  return at::convolution_backward(grad, x, weight, at::OptionalIntArrayRef(),
                                  {geometry.stride, geometry.stride}, {geometry.padding, geometry.padding},
                                  /*dilation=*/{1, 1}, /*transposed=*/false, /*output_padding=*/{0, 0},
                                  geometry.groups, wanted);
}

}  // namespace

void conv_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const ConvGeometry& geometry, const at::Tensor& entries, const at::Tensor& out) {
#if ESPALIER_WITH_CUDA
  const bool is_ours = all_channels_last(x, weight, out);
  if (is_ours && takes_depthwise_cuda(x, weight, geometry))
    return depthwise_by_cuda(ConvPass::kForward, x, weight, out, bias, geometry, entries);
  if (is_ours && takes_conv_cuda(x, weight))
    return conv_by_cuda(ConvPass::kForward, x, weight, out, bias, geometry, entries);
#endif
  const at::NoTF32Guard exact;
  for (int64_t lane = 0; lane < x.size(0); ++lane) {
    if (!is_active(entries, lane)) continue;
    out.select(0, lane).copy_(at::convolution(
        x.select(0, lane), weight.select(0, lane),
        bias.defined() ? std::optional(bias.select(0, lane).to(x.scalar_type())) : std::nullopt,
        {geometry.stride, geometry.stride}, {geometry.padding, geometry.padding},
        /*dilation=*/{1, 1}, /*transposed=*/false, /*output_padding=*/{0, 0}, geometry.groups));
  }
}

void conv_backward_data(const at::Tensor& grad, const at::Tensor& weight, const ConvGeometry& geometry,
                        const at::Tensor& entries, const at::Tensor& grad_x) {
#if ESPALIER_WITH_CUDA
  const bool is_ours = all_channels_last(grad_x, weight, grad);
  if (is_ours && takes_depthwise_cuda(grad_x, weight, geometry))
    return depthwise_by_cuda(ConvPass::kData, grad_x, weight, grad, {}, geometry, entries);
  if (is_ours && takes_conv_cuda(grad_x, weight))
    return conv_by_cuda(ConvPass::kData, grad_x, weight, grad, {}, geometry, entries);
#endif
  for (int64_t lane = 0; lane < grad_x.size(0); ++lane) {
    if (!is_active(entries, lane)) continue;
    // The input gives its sizes and layout alone.
    grad_x.select(0, lane).copy_(
        std::get<0>(lane_gradients(grad.select(0, lane), grad_x.select(0, lane), weight.select(0, lane),
                                   geometry, {true, false, false})));
  }
}

void conv_backward_weight(const at::Tensor& grad, const at::Tensor& x, const ConvGeometry& geometry,
                          const at::Tensor& entries, const at::Tensor& grad_weight) {
#if ESPALIER_WITH_CUDA
  const bool is_ours = all_channels_last(x, grad_weight, grad);
  if (is_ours && takes_depthwise_cuda(x, grad_weight, geometry))
    return depthwise_by_cuda(ConvPass::kWeight, x, grad_weight, grad, {}, geometry, entries);
  if (is_ours && takes_conv_cuda(x, grad_weight))
    return conv_by_cuda(ConvPass::kWeight, x, grad_weight, grad, {}, geometry, entries);
#endif
  const bool by_cpu = x.is_cpu() && all_channels_last(x, grad_weight, grad);
  for (int64_t lane = 0; lane < x.size(0); ++lane) {
    if (!is_active(entries, lane)) continue;
    const at::Tensor to = grad_weight.select(0, lane);
    if (by_cpu) {
      conv_weight_by_cpu(grad.select(0, lane), x.select(0, lane), geometry, to);
      continue;
    }
    to.copy_(std::get<1>(lane_gradients(grad.select(0, lane), x.select(0, lane), to.to(x.scalar_type()),
                                        geometry, {false, true, false})));
  }
}

}  // namespace espalier::lanes
