// A categorical distribution over the legal choices of one head, in fp32, for any number of rows at once.
//
// Kept true: finite for all finite logits, however extreme; what is illegal is never chosen, whatever its
// logit (NaN too); a row without a legal choice behaves as if its first were the only one, so that nothing is
// ever divided by 0: such rows are reported elsewhere. Sampling is a pure function of its uniform numbers. A
// NaN among the legal logits comes out as NaN: it is not repaired.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::policy {

// The log-probability of what cannot be chosen, and the least that a legal choice gets: its exponential is 0,
// and sums and differences of a few of them stay finite.
inline constexpr double kLeastLogProb = -1e4;

// logits: [...,A] of floats; legal: [...,A] bool, or a shape that broadcasts to it. Returns [...,A] f32 (f64
// for f64 logits, for tests), differentiable.
at::Tensor masked_log_probs(const at::Tensor& logits, const at::Tensor& legal);

// Entropy over the log of the number of legal choices: in [0,1], 0 where there is one. Takes what
// masked_log_probs() gave. Returns [...].
at::Tensor normalised_entropy(const at::Tensor& log_probs, const at::Tensor& legal);

// Draws by the largest of log-probability plus Gumbel noise (Maddison et al., arXiv 1411.0030), which needs
// no running sum, whose order of additions would depend on the device. uniforms: [...,A] in [0,1), one for
// each choice. Returns [...] i64.
at::Tensor sample_choice(const at::Tensor& log_probs, const at::Tensor& legal, const at::Tensor& uniforms);

// The likeliest legal choice; the first of equals. Returns [...] i64.
at::Tensor likeliest_choice(const at::Tensor& log_probs, const at::Tensor& legal);

}  // namespace espalier::policy
