#include "espalier/linet/stream_balance.h"

#include <ATen/ops/stack.h>

namespace espalier::linet {

at::Tensor stream_balance_loss(const std::vector<at::Tensor>& contributions) {
  TORCH_CHECK(!contributions.empty(), "stream_balance_loss: contributions: want at least one layer's");
  return at::stack(contributions).log().var(at::IntArrayRef({1}), /*unbiased=*/false).mean();
}

at::Tensor stream_shares(const std::vector<at::Tensor>& contributions) {
  TORCH_CHECK(!contributions.empty(), "stream_shares: contributions: want at least one layer's");
  const at::Tensor norms = at::stack(contributions);  // [P,S]
  return (norms / norms.sum(at::IntArrayRef({1}), /*keepdim=*/true)).mean(0);
}

}  // namespace espalier::linet
