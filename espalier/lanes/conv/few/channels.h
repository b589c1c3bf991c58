// The numbers of channels and filters for which convolutions have kernels of their own, faster than cuDNN's.
// Free of CUDA and torch: a plan of memory asks too.
#pragma once

#include <cstdint>

namespace espalier::lanes {

inline constexpr int64_t kFirstChannels = 3;  // what a network's first convolution reads

inline bool is_few(int64_t channels) {
  return channels == 8 || channels == 16 || channels == 32;
}

}  // namespace espalier::lanes
