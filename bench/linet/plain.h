// A multi-stream network as one would write it with torch's own operators, stream after stream; or with the
// streams of a layer side by side in channels for one grouped convolution, packed and taken apart in every
// layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "espalier/linet/network.h"
#include "espalier/tensor/layout.h"

namespace espalier::bench {

enum class StreamPacking { kSequential, kGrouped };

class PlainLinet {
 public:
  // The values of `net`, as leaves of its device; filters in the compute type and memory format.
  PlainLinet(linet::Linet& net, at::ScalarType compute, MemoryFormat format, StreamPacking packing);

  // x: S x [B,C_i,H,W] of the compute type and format. Training mode; returns the logits, [B,K] f32.
  at::Tensor forward(const std::vector<at::Tensor>& x);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // Finds a value by its name in the network's stream tensors.
  const at::Tensor& value(const std::string& name) const { return values_.at(name); }

 private:
  using Paths = std::vector<at::Tensor>;  // [S] streams, then the integrated path where there is one

  Paths layer(const std::string& conv, const std::string& norm, const Paths& x, int64_t stride);
  Paths block(const std::string& name, const Paths& x, int64_t stride);

  linet::LinetShape shape_;
  StreamPacking packing_;
  std::map<std::string, at::Tensor> values_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace espalier::bench
