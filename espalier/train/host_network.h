// One small convolutional network: blocks of 3x3 convolution, batch norm, ReLU and 2x2 max pooling with 32,
// 64 and 128 channels, then global average pooling and a linear classifier. Weights are channels-last from
// construction.
#pragma once

#include <torch/nn.h>

#include <vector>

#include "espalier/core/layout.h"

namespace espalier::train {

class HostNetwork : public torch::nn::Module {
 public:
  // Fails for images that three poolings would shrink below 1x1.
  HostNetwork(int64_t channels, int64_t height, int64_t width, int64_t num_classes, MemoryFormat format);

  // images: [B,C,H,W] f32 cl. Returns [B,classes] f32.
  at::Tensor forward(at::Tensor images);

 private:
  std::vector<torch::nn::Conv2d> convs_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Linear classifier_{nullptr};
};

}  // namespace espalier::train
