// The learned gate of GATE blending: for every sample a number in (0, 1), from what the seed sees.
//
// Kept true: entries never mix.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/grow/seeds/blueprint.h"
#include "espalier/lanes/head/linear.h"

namespace espalier::grow {

class BlendGate {
 public:
  explicit BlendGate(const SeedBuild& build);

  // x: [E,B,C,H,W]. Global average pool, linear to max(8, C/4), ReLU, linear to 1, sigmoid: [E,B] of the
  // master type.
  at::Tensor forward(const at::Tensor& x) const;

  std::vector<lanes::NamedParameter> parameters();  // "hidden.weight", ..., "out.bias"
  void initialise(const SeedInit& init);            // torch's defaults

  static int64_t num_parameters(int64_t channels);

 private:
  lanes::LaneLinear hidden_;
  lanes::LaneLinear out_;
};

}  // namespace espalier::grow
