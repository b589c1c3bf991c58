// Batch norm and group norm of every lane, with masked samples, a residual to add and a fused ReLU.
//
// Kept true: lanes never mix, and a lane's bits are those it has alone; a masked sample counts neither in
// the statistics nor in the output (zero there, whatever it holds, NaN included) nor in any gradient; no host
// reads. Statistics are sums in sum_type(), about the mean or a value near it, so fp32 loses nothing to
// cancellation. A single value has no variance: batch norm never trains on one. Where the shape
// tells it is refused; where a mask leaves one, which the device alone knows, the running statistics stand
// in.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/lanes/parameter.h"

namespace espalier::lanes {

enum class Mode { kTrain, kEvaluate };
enum class Activation { kNone, kRelu };
enum class Pooling { kNone, k2x2, k3x3 };  // after the activation, as lane_max_pool2x2() and ...3x3() do

// What a batch norm is given besides its input and parameters.
struct BatchNormCall {
  Mode mode = Mode::kTrain;
  at::Tensor mask;          // [L,B] bool, true where there is a sample; or undefined: all are
  at::Tensor running_mean;  // [L,C]; written in kTrain
  at::Tensor running_var;   // [L,C]; written in kTrain
  at::Tensor residual;      // [L,B,C,H,W] of x's type and layout, added before the activation; or undefined
  at::Tensor fallbacks;  // [L] f64, dense, or undefined: counts in kTrain where running statistics stood in
  Activation activation = Activation::kNone;
  Pooling pooling = Pooling::kNone;  // not with a residual
  double momentum = 0.1;
  double eps = 1e-5;
};

// x [L,B,C,H,W] f32|f64|bf16|f16 cl lanes; weight, bias [L,C], of x's type or wider.
// Returns [L,B,C,H,W] cl lanes, or pooled: [L,B,C,H/2,W/2], [L,B,C,(H+1)/2,(W+1)/2]. In kTrain the running
// statistics move by momentum towards the batch's (the variance unbiased, as torch's); those of a lane
// without samples stay. Refuses as torch does to train on [L,1,C,1,1]. A lane to which the mask leaves a
// single value per channel is normalised with its running statistics, which stay and are constants to its
// gradients: what torch does in evaluation. Differentiable once, in x, weight, bias and residual.
at::Tensor lane_batch_norm2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const BatchNormCall& call);

struct GroupNormCall {
  int64_t groups = 1;
  at::Tensor mask;  // [L,B] bool, or undefined
  Activation activation = Activation::kNone;
  double eps = 1e-5;
  bool is_rectified = false;  // normalises relu(x); where takes_rectified(x) alone
  at::Tensor residual =
      {};  // [L,B,C,H,W] as x, added to the result; where takes_rectified(x) alone, without mask
};

// Whether lane_group_norm() can take the ReLU before it and the sum after it into its own loops, without a
// mask.
bool takes_rectified(const at::Tensor& x);

// As lane_batch_norm2d(); statistics are a sample's own, over the channels of a group.
at::Tensor lane_group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const GroupNormCall& call);

class LaneBatchNorm2d {
 public:
  // weight and running_var are ones, bias and running_mean zeros.
  LaneBatchNorm2d(int64_t lanes, int64_t channels, const at::TensorOptions& options);

  at::Tensor forward(const at::Tensor& x, Mode mode, const at::Tensor& mask = {},
                     Activation activation = Activation::kNone, Pooling pooling = Pooling::kNone) const;
  // What a call is given by the layer itself, to be added to.
  BatchNormCall call(Mode mode, const at::Tensor& mask) const;
  at::Tensor forward(const at::Tensor& x, const BatchNormCall& call) const;
  // relu(norm(x) + residual).
  at::Tensor forward_residual(const at::Tensor& x, const at::Tensor& residual, Mode mode,
                              const at::Tensor& mask = {}) const;

  std::vector<NamedParameter> parameters() { return {{"weight", &weight}, {"bias", &bias}}; }

  LaneParameter weight;     // [L,C]
  LaneParameter bias;       // [L,C]
  at::Tensor running_mean;  // [L,C]
  at::Tensor running_var;   // [L,C]
  double momentum = 0.1;
  double eps = 1e-5;
};

class LaneGroupNorm {
 public:
  // weight is ones, bias zeros.
  LaneGroupNorm(int64_t lanes, int64_t groups, int64_t channels, const at::TensorOptions& options);

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask = {},
                     Activation activation = Activation::kNone) const;
  // residual + the norm of x, or of relu(x); only where takes_rectified(x).
  at::Tensor forward_beside(const at::Tensor& residual, const at::Tensor& x, Activation before) const;

  std::vector<NamedParameter> parameters() { return {{"weight", &weight}, {"bias", &bias}}; }

  LaneParameter weight;  // [L,C]
  LaneParameter bias;    // [L,C]
  double eps = 1e-5;

 private:
  int64_t groups_ = 1;
};

}  // namespace espalier::lanes
