// What norms are compared with: torch's, over the samples that count.
#pragma once

#include <torch/torch.h>

#include <functional>

#include "espalier/lanes/norm/layer.h"

namespace espalier::lanes::testing {

inline at::Tensor activated(const at::Tensor& y, Activation activation) {
  return activation == Activation::kRelu ? y.relu() : y;
}

// torch has no masks: the valid samples alone, put back in their places among zeros.
inline at::Tensor over_valid(const at::Tensor& x, const at::Tensor& mask,
                             const std::function<at::Tensor(const at::Tensor&)>& layer) {
  if (!mask.defined()) return layer(x);
  const at::Tensor places = mask.nonzero().flatten();
  return at::zeros_like(x).index_put({places}, layer(x.index_select(0, places)));
}

}  // namespace espalier::lanes::testing
