// The random numbers that choices are drawn with, by counters that the CPU and a kernel share: a number
// depends on (seed, round, step, lane, choice) alone.
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/core/random/philox.h"

namespace espalier::policy {

// In [0,1), 24 bits: exact in fp32, so every device has the same. Four neighbouring choices share one
// counter's words, whose upper bits tell the fours apart.
ESPALIER_HOST_DEVICE float choice_uniform(uint64_t seed, int64_t round, int64_t step, int64_t lane,
                                          int64_t choice) {
  const auto purpose = static_cast<uint32_t>(Purpose::kChoice);
  const Words4 words =
      philox4x32(seed, static_cast<uint32_t>(lane), static_cast<uint32_t>(step), static_cast<uint32_t>(round),
                 purpose | static_cast<uint32_t>(choice / 4) << 8);
  return static_cast<float>(words[static_cast<int>(choice % 4)] >> 8) * 0x1p-24f;
}

struct UniformsArgs {
  uint64_t seed = 0;
  const int64_t* round = nullptr;  // [1]
  const int64_t* step = nullptr;   // [1]
  int64_t lanes = 0;
  int64_t choices = 0;
  float* uniforms = nullptr;  // [L,A] dense
};

}  // namespace espalier::policy
