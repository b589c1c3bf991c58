// One pass of one convolution of lanes on CUDA, and the ways in which it can be done.
//
//   lanes     a kernel of all lanes at once
//   products  one matrix product per lane: single pixels
//   folded    as another convolution, of a quarter of the pixels: few channels, stride 2 (fold.h)
//   cudnn N   cuDNN lane by lane, on parallel branches
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "espalier/lanes/conv/cudnn_plan.h"
#include "espalier/lanes/conv/layer.h"

namespace espalier::lanes {

// Its tensors as kernels want them.
struct ConvJob {
  ConvPass pass = ConvPass::kForward;
  at::Tensor x, weight, out;  // [L,...]; the one that is written is the caller's own
  at::Tensor bias;
  at::Tensor entries;
  ConvGeometry geometry;
};

struct ConvWay {
  enum class By { kLanes, kProducts, kFolded, kCudnn };
  By by = By::kLanes;
  std::shared_ptr<CudnnPlan> plan;       // for kCudnn
  KernelType result = KernelType::kF32;  // what the plan writes

  // "cudnn 3 narrow": a weight's gradient that is written in x's type, and widened.
  std::string text(ConvPass pass) const;
};

std::string key_of(const ConvJob& job);  // "forward 8x512x32x16x16 64 filters 3x3 ..."

// Our own kernels; first the one that is taken without measuring.
std::vector<ConvWay> own_ways(const ConvJob& job);
// cuDNN's deterministic plans, `most` for each type of result. A weight's gradient may be written in fp32, or
// in x's type and then widened: cuDNN has its fastest kernels for the latter.
std::vector<ConvWay> cudnn_ways(const ConvJob& job, int most);

void run(const ConvJob& job, const ConvWay& way);

// How the job is done: chosen at first sight (choose.cpp). A folded job asks for the one inside it.
ConvWay way_for(const ConvJob& job);

}  // namespace espalier::lanes
