// How evenly the streams feed the integrated path.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/linet/rules.h"

namespace espalier::linet {

// contributions: P x [S], the norms of P layers. Returns the variance over streams of a layer's logarithms,
// averaged over the layers: 0 where all streams give alike. A scalar, differentiable.
// kOriginal: log(norm + 1e-8) and the unbiased variance (divided by S - 1), so at least two streams.
// kEspalier: log(norm) and the population's variance (divided by S), which is 0 for one stream.
at::Tensor stream_balance_loss(const std::vector<at::Tensor>& contributions, LinetRules rules);

// [S]: each stream's part of the sum of the norms, averaged over the layers; they add up to 1.
at::Tensor stream_shares(const std::vector<at::Tensor>& contributions);

}  // namespace espalier::linet
