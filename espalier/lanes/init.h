// Initialisation of stacked parameters.
//
// Kept true: a value depends on (seed, lane, parameter's name, place in the lane) alone, so lane 3 of 8
// equals lane 3 of 128, on every device and whatever was initialised before; places count in the order of the
// axes, not of the memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace espalier::lanes {

struct InitKey {
  uint64_t seed = 0;
  std::string_view parameter;  // "block0.conv.weight": parameters of one name draw the same numbers
  int64_t first_lane = 0;      // which lane the tensor's first one is: a slice of a stack starts elsewhere
};

// Uniform in (-bound, bound). stacked: [L,...] of floats, in place, on any device.
void init_uniform_(const at::Tensor& stacked, double bound, const InitKey& key);

// torch's default for weights of convolutions [L,K,C,k,k] and linear maps [L,O,I]: Kaiming-uniform with
// a = sqrt(5) (He et al., arXiv 1502.01852), which is a bound of 1 / sqrt(fan in).
void init_kaiming_uniform_(const at::Tensor& weight, const InitKey& key);

// Matrices [L,K,K] or [L,K,K,1,1] with orthonormal rows, uniform among all of them: the Q of a matrix of
// normal numbers, with the signs of R's diagonal (Saxe et al., arXiv 1312.6120; Mezzadri, arXiv
// math-ph/0609050).
void init_orthogonal_(const at::Tensor& weight, const InitKey& key);

// The bound of a bias [L,K] that goes with such a weight: the same.
double kaiming_bound(const at::Tensor& weight);

}  // namespace espalier::lanes
