// A whole sample summed up in a few numbers: squeeze-and-excite (Hu et al., arXiv 1709.01507), for attention
// and for the gates of blending.
//
// Kept true: entries never mix, and an entry's bits are those it has alone. Differentiable once. On CUDA one
// kernel forward and two backward; empty entries (lanes/active.h) are left out there.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/lanes/head/linear.h"

namespace espalier::grow {

// A linear map of every entry.
struct SqueezeMap {
  at::Tensor weight;  // [E,O,I] master
  at::Tensor bias;    // [E,O] master
};

// factor sigmoid(second(relu(first(mean over pixels of x)))). x: [E,B,C,H,W]; first: C to M features, second:
// M to O. Returns [E,B,O] of the maps' type.
at::Tensor lane_squeeze(const at::Tensor& x, const SqueezeMap& first, const SqueezeMap& second,
                        double factor = 1);

inline SqueezeMap squeeze_map(const lanes::LaneLinear& layer) {
  return {layer.weight.value(), layer.bias.value()};
}

}  // namespace espalier::grow
