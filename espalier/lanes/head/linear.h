// A linear map of every lane with its own weights.
//
// Kept true: lanes never mix, and a lane's bits are those it has alone; results are written straight into
// their slices.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/lanes/head/pooled_linear.h"
#include "espalier/lanes/parameter.h"

namespace espalier::lanes {

// x [L,B,I] of any float type; weight [L,O,I] and bias [L,O] of one type, bias may be undefined.
// Returns [L,B,O] row-major lanes of the weight's type, in which it computes: a narrow x meets master weights
// as they are. Differentiable once, in all three.
at::Tensor lane_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Refuses a weight or a bias, in a sentence of `function`, that does not fit an x of so many lanes and
// features.
void check_linear(int64_t lanes, int64_t in_features, at::Device device, const at::Tensor& weight,
                  const at::Tensor& bias, const char* function);

struct LaneLinearOptions {
  int64_t lanes = 1;
  int64_t in_features = 1;
  int64_t out_features = 1;
  bool has_bias = true;
};

class LaneLinear {
 public:
  // Parameters are zeros until they are initialised (lanes/init.h).
  LaneLinear(const LaneLinearOptions& options, const at::TensorOptions& tensor_options);

  at::Tensor forward(const at::Tensor& x) const { return lane_linear(x, weight.value(), bias.value()); }
  // Maps each sample's mean over its pixels; x [L,B,I,H,W].
  at::Tensor forward_pooled(const at::Tensor& x) const {
    return lane_pooled_linear(x, weight.value(), bias.value());
  }

  std::vector<NamedParameter> parameters();  // weight, then bias if there is one

  LaneParameter weight;  // [L,O,I]
  LaneParameter bias;    // [L,O], or none
};

}  // namespace espalier::lanes
