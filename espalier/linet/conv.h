// The layer that all streams and the integrated path go through together:
//
//   d_i = W_i * x_i                      every stream's raw response
//   z   = sum_i V_i d_i + V_prev h       what the raw responses integrate to, before any norm or activation
//
// The integrated path is one more lane after the streams': x is [S+1,B,C,H,W] with h in its last lane, the
// result [S+1,B,K,H',W'] with z in its last. So a norm, a ReLU, a residual and a pool do all paths at once.
//
// Kept true: streams never mix but in z; the terms of z are accumulated where z lies, one product per term,
// and so are the gradients that flow back from z into the raw responses: no temporaries, no adding of them
// up.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/lanes/conv/layer.h"
#include "espalier/lanes/parameter.h"

namespace espalier::linet {

struct LiConvOptions {
  int64_t streams = 1;
  std::vector<int64_t> apart;  // a first layer's: channels of each stream's own input, and no previous state
  int64_t in_channels = 1;     // per path, where streams are stacked
  int64_t filters = 1;
  int64_t kernel_size = 3;
  int64_t stride = 1;
  bool has_bias = false;
};

class LiConv {
 public:
  // Padding is half the kernel. Parameters are zeros until they are initialised.
  LiConv(const LiConvOptions& options, const at::TensorOptions& tensor_options, at::ScalarType compute);

  // x: [S+1,B,C,H,W], or S x [1,B,C_i,H,W] for a first layer; of the compute type. Returns [S+1,B,K,H',W'].
  // A bias is added to a stream's own result, after its raw response went into z; z has one of its own.
  at::Tensor forward(at::TensorList x) const;

  // One stream alone. x: [1,B,C_i,H,W]; returns [1,B,K,H',W'].
  at::Tensor forward_stream(int64_t stream, const at::Tensor& x) const;

  // [S]: the Frobenius norm of V_i d_i, which is what each stream gives to z. Differentiable in both.
  // raw: what forward() returned, of a layer without biases.
  at::Tensor contribution_norms(const at::Tensor& raw) const;

  bool has_previous() const { return previous.defined(); }

  std::vector<lanes::LaneParameter> weight;  // [S,K,C,k,k], or S x [1,K,C_i,k,k] of a first layer
  lanes::LaneParameter mix;                  // [S,K,K,1,1]: V_i
  lanes::LaneParameter previous;             // [1,K,C,1,1]: V_prev, with the layer's stride; or none
  lanes::LaneParameter bias;                 // [S+1,K]: the streams', then z's; or none

 private:
  int64_t streams_;
  lanes::ConvGeometry geometry_;
};

}  // namespace espalier::linet
