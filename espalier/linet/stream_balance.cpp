#include "espalier/linet/stream_balance.h"

#include <ATen/ops/stack.h>

namespace espalier::linet {
namespace {

// Keeps the logarithm of a stream that is blanked in a whole batch finite.
constexpr double kOriginalEpsilon = 1e-8;

}  // namespace

at::Tensor stream_balance_loss(const std::vector<at::Tensor>& contributions, LinetRules rules) {
  TORCH_CHECK(!contributions.empty(), "stream_balance_loss: contributions: want at least one layer's");
  if (rules == LinetRules::kOriginal) {
    TORCH_CHECK(contributions.front().numel() >= 2,
                "stream_balance_loss: contributions: want at least 2 streams by the original's rules, got ",
                contributions.front().numel(), "; the unbiased variance of one is not defined");
    const at::Tensor norms = at::stack(contributions);  // [P,S]
    return (norms + kOriginalEpsilon).log().var(at::IntArrayRef({1}), /*unbiased=*/true).mean();
  }
  return at::stack(contributions).log().var(at::IntArrayRef({1}), /*unbiased=*/false).mean();
}

at::Tensor stream_shares(const std::vector<at::Tensor>& contributions) {
  TORCH_CHECK(!contributions.empty(), "stream_shares: contributions: want at least one layer's");
  const at::Tensor norms = at::stack(contributions);  // [P,S]
  return (norms / norms.sum(at::IntArrayRef({1}), /*keepdim=*/true)).mean(0);
}

}  // namespace espalier::linet
