// Batch norm and group norm of every lane, with masked samples and a fused ReLU.
//
// Keeps true: lanes never mix, and a lane's bits are those it has alone; a masked sample counts neither in
// the statistics nor in the output (zero there, whatever it holds, NaN included) nor in any gradient; no host
// reads. Statistics are sums in sum_type(), in two passes (mean, then squared differences), so fp32 loses
// nothing to cancellation.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace espalier::lanes {

enum class Mode { kTrain, kEvaluate };
enum class Activation { kNone, kRelu };

class LaneBatchNorm2d {
 public:
  // weight and running_var are ones, bias and running_mean zeros.
  LaneBatchNorm2d(int64_t lanes, int64_t channels, const at::TensorOptions& options);

  // x    [L,B,C,H,W] f32|f64|bf16|f16 cl lanes
  // mask [L,B] bool, true where there is a sample; or undefined: all are
  // Returns [L,B,C,H,W] cl lanes. In kTrain the running statistics move by momentum towards the batch's (the
  // variance unbiased, as torch's); those of a lane without samples stay. A single value a channel has
  // variance 0, where torch refuses: its lanes alone would have to stop.
  at::Tensor forward(const at::Tensor& x, Mode mode, const at::Tensor& mask = {},
                     Activation activation = Activation::kNone) const;

  std::vector<at::Tensor> parameters() const { return {weight, bias}; }

  at::Tensor weight;        // [L,C]
  at::Tensor bias;          // [L,C]
  at::Tensor running_mean;  // [L,C]
  at::Tensor running_var;   // [L,C]
  double momentum = 0.1;
  double eps = 1e-5;
};

class LaneGroupNorm {
 public:
  // weight is ones, bias zeros.
  LaneGroupNorm(int64_t lanes, int64_t groups, int64_t channels, const at::TensorOptions& options);

  // As LaneBatchNorm2d's; statistics are a sample's own, over the channels of a group.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask = {},
                     Activation activation = Activation::kNone) const;

  std::vector<at::Tensor> parameters() const { return {weight, bias}; }

  at::Tensor weight;  // [L,C]
  at::Tensor bias;    // [L,C]
  double eps = 1e-5;

 private:
  int64_t groups_ = 1;
};

}  // namespace espalier::lanes
