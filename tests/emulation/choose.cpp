// espalier/lanes/conv/choose.cpp for emulated kernels: ours wherever one takes the convolution, and torch's
// in the place of cuDNN.
#include "espalier/lanes/conv/choose.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "espalier/lanes/conv/choice.h"
#include "espalier/lanes/conv/job.h"
#include "espalier/lanes/launch.h"

namespace espalier::lanes {
namespace {

void run_by_torch(const ConvJob& job) {
  const ConvGeometry& geometry = job.geometry;
  const std::vector<int64_t> stride(2, geometry.stride), padding(2, geometry.padding), one(2, 1), none(2, 0);
  for (int64_t lane = 0; lane < job.x.size(0); ++lane) {
    const at::Tensor x = job.x.select(0, lane), weight = job.weight.select(0, lane),
                     out = job.out.select(0, lane);
    if (job.pass == ConvPass::kForward) {
      out.copy_(at::convolution(x, weight, job.bias.defined() ? job.bias.select(0, lane) : at::Tensor(),
                                stride, padding, one, /*transposed=*/false, none, geometry.groups));
      continue;
    }
    const bool is_data = job.pass == ConvPass::kData;
    const auto grads = at::convolution_backward(out, x, weight.to(x.scalar_type()), at::OptionalIntArrayRef(),
                                                stride, padding, one, /*transposed=*/false, none,
                                                geometry.groups, {is_data, !is_data, false});
    if (is_data)
      x.copy_(std::get<0>(grads));
    else
      weight.copy_(std::get<1>(grads));
  }
}

ConvChoices& made() {
  static auto& choices = *new ConvChoices;
  return choices;
}

}  // namespace

// The front of what there is, as where nothing is measured.
ConvWay way_for(const ConvJob& job) {
  return own_ways(job).front();
}

bool takes_conv_cuda(const at::Tensor& x, const at::Tensor& weight) {
  return (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) &&
         weight.size(3) == weight.size(4);
}

void conv_by_cuda(ConvPass pass, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out,
                  const at::Tensor& bias, const ConvGeometry& geometry, const at::Tensor& entries) {
  const ConvJob job{.pass = pass,
                    .x = pass == ConvPass::kData ? x : for_kernel(x),
                    .weight = pass == ConvPass::kWeight ? weight : for_kernel(weight),
                    .out = pass == ConvPass::kForward ? out : for_kernel(out),
                    .bias = bias,
                    .entries = entries,
                    .geometry = geometry};
  const std::vector<ConvWay> ways = own_ways(job);
  // Products of matrices are torch's in any case.
  if (ways.empty() || ways.front().by == ConvWay::By::kProducts) return run_by_torch(job);
  if (!entries.defined()) made()[key_of(job)] = ways.front().text(pass);
  run(job, ways.front());
}

void set_conv_choosing(ConvChoosing) {}
ConvChoices conv_choices() {
  return made();
}
void set_conv_choices(const ConvChoices&) {}

}  // namespace espalier::lanes
