// What the layout contract says of stacked images, in the words of one lane.
#pragma once

#include "espalier/tensor/layout.h"

namespace espalier::support {

// Whether every lane of [L,B,C,H,W] is channels-last. All lanes have the strides of the first.
inline bool is_stacked_channels_last(const at::Tensor& stacked) {
  return stacked.dim() == 5 && (stacked.size(0) == 0 || is_channels_last(stacked.select(0, 0)));
}

}  // namespace espalier::support
