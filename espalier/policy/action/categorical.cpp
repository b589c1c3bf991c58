#include "espalier/policy/action/categorical.h"

#include <ATen/ATen.h>

#include <limits>

namespace espalier::policy {
namespace {

// [...,A] bool with a choice in every row: the first where there was none.
at::Tensor never_empty(const at::Tensor& legal) {
  const at::Tensor first = at::arange(legal.size(-1), legal.options().dtype(at::kLong)).eq(0);
  return legal | (legal.any(-1, /*keepdim=*/true).logical_not() & first);
}

at::Tensor argmax_of_legal(const at::Tensor& score, const at::Tensor& legal) {
  return at::where(never_empty(legal), score, -std::numeric_limits<double>::infinity()).argmax(-1);
}

}  // namespace

at::Tensor masked_log_probs(const at::Tensor& logits, const at::Tensor& legal) {
  TORCH_CHECK(logits.is_floating_point() && logits.dim() >= 1 && logits.size(-1) >= 1,
              "masked_log_probs: logits: want [...,A] of floats, A >= 1, got ", logits.sizes(), " ",
              logits.scalar_type());
  TORCH_CHECK(legal.scalar_type() == at::kBool && legal.dim() >= 1 && legal.size(-1) == logits.size(-1),
              "masked_log_probs: legal: want [...,", logits.size(-1), "] Bool, got ", legal.sizes(), " ",
              legal.scalar_type());
  const at::Tensor scores = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const at::Tensor kept = never_empty(legal);
  const at::Tensor most =
      at::where(kept, scores.detach(), -std::numeric_limits<double>::infinity()).amax(-1, /*keepdim=*/true);
  // Two extremes may differ by infinity: the clamp makes that finite.
  const at::Tensor below = at::where(kept, scores - most, 0).clamp_min(kLeastLogProb);  // <= 0, somewhere 0
  const at::Tensor sum = at::where(kept, below.exp(), 0).sum(-1, /*keepdim=*/true);     // >= 1
  return at::where(kept, (below - sum.log()).clamp_min(kLeastLogProb), kLeastLogProb);
}

at::Tensor normalised_entropy(const at::Tensor& log_probs, const at::Tensor& legal) {
  const at::Tensor kept = never_empty(legal);
  const at::Tensor entropy = at::where(kept, log_probs.exp() * log_probs, 0).sum(-1).neg();
  const at::Tensor count = kept.sum(-1).expand(entropy.sizes());
  return at::where(count.gt(1), entropy / count.clamp_min(2).to(entropy.scalar_type()).log(), 0);
}

at::Tensor sample_choice(const at::Tensor& log_probs, const at::Tensor& legal, const at::Tensor& uniforms) {
  TORCH_CHECK(uniforms.sizes() == log_probs.sizes(), "sample_choice: uniforms: want ", log_probs.sizes(),
              ", got ", uniforms.sizes());
  // log(0) twice over would make +inf or NaN of the noise.
  const at::Tensor u = uniforms.clamp(std::numeric_limits<float>::min(), 1 - 0x1p-24);
  return argmax_of_legal(log_probs.detach() - u.log().neg().log(), legal);
}

at::Tensor likeliest_choice(const at::Tensor& log_probs, const at::Tensor& legal) {
  return argmax_of_legal(log_probs.detach(), legal);
}

}  // namespace espalier::policy
