// What every stream knows by itself: a linear head on its pooled features, trained beside the network.
//
// Kept true: features are detached, so heads have no influence on the network; they are part neither of it
// nor of what is exported.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/lanes/head/linear.h"
#include "espalier/linet/shape.h"

namespace espalier::linet {

class StreamMonitor {
 public:
  // Initialised with shape.seed; of f32 (f64 where options say so).
  StreamMonitor(const LinetShape& shape, const at::TensorOptions& options);

  // features: [S+1,B,F] as Linet::forward() gives them. Returns [S,B,num_classes].
  at::Tensor forward(const at::Tensor& features) const;

  std::vector<lanes::NamedParameter> parameters();  // "monitor.weight", "monitor.bias", one lane per stream

 private:
  int64_t streams_;
  lanes::LaneLinear heads_;
};

}  // namespace espalier::linet
