// Convolution of every lane with its own filters.
//
// Keeps true: lanes never mix, and a lane's bits are those it has alone; outputs and all gradients are born
// stacked, every lane channels-last. One convolution a lane: ATen's convolutions and their gradients return
// tensors of their own, so each is copied into its slice of the stacked result.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace espalier::lanes {

struct ConvGeometry {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;  // within a lane
};

// x       [L,B,C,H,W] f32|f64|bf16 cl lanes
// weight  [L,K,C/groups,k,k], x's type, cl lanes (memory K,R,S,C)
// bias    [L,K], x's type, or undefined
// Returns [L,B,K,H',W'] cl lanes. Differentiable once, in x, weight and bias.
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
  // Parameters are zeros until they are initialised (lane_init.h).
  LaneConv2d(const LaneConv2dOptions& options, const at::TensorOptions& tensor_options);

  at::Tensor forward(const at::Tensor& x) const;  // see lane_conv2d()

  std::vector<at::Tensor> parameters() const;  // weight, then bias if there is one

  at::Tensor weight;  // [L,K,C/groups,k,k] cl lanes
  at::Tensor bias;    // [L,K], or undefined

 private:
  ConvGeometry geometry_;
};

}  // namespace espalier::lanes
