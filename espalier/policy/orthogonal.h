// Orthogonal first values of weights.
//
// Kept true: values depend on (seed, parameter's name, sizes) alone, on every device and whatever was
// initialised before.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace espalier::policy {

// Fills weight [O,I], of floats, with gain times a matrix whose shorter side is orthonormal, uniform among
// all of them: the Q of normal numbers with the signs of R's diagonal (Saxe et al., arXiv 1312.6120;
// Mezzadri, arXiv math-ph/0609050).
void init_orthogonal_(const at::Tensor& weight, double gain, uint64_t seed, std::string_view name);

// Fills with normal numbers of the given deviation, by the same key. For embeddings.
void init_normal_(const at::Tensor& values, double deviation, uint64_t seed, std::string_view name);

}  // namespace espalier::policy
