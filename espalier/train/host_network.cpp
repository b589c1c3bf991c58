#include "espalier/train/host_network.h"

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier::train {

namespace nn = torch::nn;

HostNetwork::HostNetwork(int64_t channels, int64_t height, int64_t width, int64_t num_classes,
                         MemoryFormat format) {
  constexpr int64_t kFirstFilters = 32;
  constexpr int kBlocks = 3;
  if (std::min(height, width) < (1 << kBlocks))
    fail("images of {}x{} are too small: {} poolings need at least {}x{}; give --resize", height, width,
         kBlocks, 1 << kBlocks, 1 << kBlocks);
  int64_t filters = kFirstFilters;
  for (int block = 0; block < kBlocks; ++block, filters *= 2) {
    auto options = nn::Conv2dOptions(channels, filters, 3).padding(1).bias(false);
    convs_.push_back(register_module(fmt::format("conv{}", block), nn::Conv2d(options)));
    norms_.push_back(register_module(fmt::format("norm{}", block), nn::BatchNorm2d(filters)));
    channels = filters;
  }
  classifier_ = register_module("classifier", nn::Linear(channels, num_classes));
  for (nn::Conv2d& conv : convs_) conv->weight.set_data(conv->weight.to(torch_format(format)));
}

at::Tensor HostNetwork::forward(at::Tensor images) {
  at::Tensor x = std::move(images);
  for (size_t block = 0; block < convs_.size(); ++block)
    x = torch::max_pool2d(norms_[block](convs_[block](x)).relu_(), 2);
  return classifier_(x.mean({2, 3}));
}

}  // namespace espalier::train
