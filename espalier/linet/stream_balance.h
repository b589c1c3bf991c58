// How evenly the streams feed the integrated path.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace espalier::linet {

// contributions: P x [S], of as many layers. The variance of the logarithms of a layer's norms (of the
// population, so 0 for one stream), averaged over the layers: 0 where all streams give alike. A scalar,
// differentiable.
at::Tensor stream_balance_loss(const std::vector<at::Tensor>& contributions);

// [S]: each stream's part of the sum of the norms, averaged over the layers; they add up to 1.
at::Tensor stream_shares(const std::vector<at::Tensor>& contributions);

}  // namespace espalier::linet
