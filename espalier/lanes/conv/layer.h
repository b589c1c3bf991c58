// Convolution of every lane with its own filters.
//
// Kept true: lanes never mix, and a lane's bits are those it has alone; outputs and all gradients are born
// stacked, every lane in x's memory format.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/lanes/parameter.h"

namespace espalier::lanes {

struct ConvGeometry {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;  // within a lane
};

// x       [L,B,C,H,W] f32|f64|bf16|f16 cl lanes
// weight  [L,K,C/groups,k,k], x's type, cl lanes (memory K,R,S,C)
// bias    [L,K], of any float type, or undefined
// Returns [L,B,K,H',W'] cl lanes, x's type. Differentiable once, in x, weight and bias.
at::Tensor lane_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvGeometry& geometry);

struct LaneConv2dOptions {
  int64_t lanes = 1;
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t kernel_size = 3;
  ConvGeometry geometry;
  bool has_bias = false;
};

class LaneConv2d {
 public:
  // Parameters are zeros until they are initialised (lanes/init.h). tensor_options: device and master type.
  LaneConv2d(const LaneConv2dOptions& options, const at::TensorOptions& tensor_options,
             at::ScalarType compute);

  // lane_conv2d() of x, of the compute type, with the compute copy of the weight.
  at::Tensor forward(const at::Tensor& x) const;

  std::vector<NamedParameter> parameters();  // weight, then bias if there is one

  LaneParameter weight;  // [L,K,C/groups,k,k] cl lanes
  LaneParameter bias;    // [L,K], or none

 private:
  ConvGeometry geometry_;
};

}  // namespace espalier::lanes
