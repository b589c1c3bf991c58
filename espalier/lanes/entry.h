// The entry of a network: the one place where a tensor from outside is converted.
//
// Kept true: a tensor that has the network's type and memory format passes with no work, and leaves with the
// strides that the format writes: lanes of one channel or one pixel lie in both orders, and the network's is
// the one that counts from here on (stack.h). Any other tensor is converted once, here, and the
// conversion is counted; the second one (a step that converts every time gets there) is warned about, once
// per entry.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "espalier/tensor/layout.h"

namespace espalier::lanes {

class LaneEntry {
 public:
  // input: what messages call it, "host: x".
  LaneEntry(std::string input, MemoryFormat format, at::ScalarType type, at::Device device);

  // x: [L,B,C,H,W] of the sizes that are wanted past L and B ([C,H,W], -1: any), on the network's device.
  at::Tensor enter(const at::Tensor& x, at::IntArrayRef sizes, int64_t lanes);

  int64_t num_conversions() const { return num_conversions_; }

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
