// The entry of a network: the one place where a foreign tensor is converted.
//
// Kept true: a tensor that has the network's type and memory format passes as it is, with no work; any other
// is converted once, here. A conversion is counted; the second one, which is what a step that converts every
// time comes to, is warned about, once a door.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "espalier/core/layout.h"

namespace espalier::lanes {

class LaneDoor {
 public:
  // input: what messages call it, "host: x".
  LaneDoor(std::string input, MemoryFormat format, at::ScalarType type, at::Device device);

  // x: [L,B,C,H,W] of the sizes that are wanted past L and B ([C,H,W], -1: any), on the network's device.
  at::Tensor enter(const at::Tensor& x, at::IntArrayRef sizes, int64_t lanes);

  int64_t num_conversions() const { return num_conversions_; }
  void set_format(MemoryFormat format) { format_ = format; }

 private:
  std::string input_;
  MemoryFormat format_;
  at::ScalarType type_;
  at::Device device_;
  int64_t num_conversions_ = 0;
};

// Fails where a stack does not lie in the format; says which op ("block1.norm") broke it. Debug builds ask
// after every block.
void check_layout_after(const std::string& op, const at::Tensor& stacked, MemoryFormat format);

}  // namespace espalier::lanes
