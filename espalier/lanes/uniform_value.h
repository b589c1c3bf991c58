// One word of random bits as a uniform number, alike on the host and in kernels.
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"

namespace espalier::lanes {

// (word + 1/2) / 2^31 - 1, in (-1, 1): symmetric, and exact in double, so that only the product rounds.
ESPALIER_HOST_DEVICE double uniform_value(uint32_t word, double bound) {
  return bound * ((static_cast<double>(word) + 0.5) * 0x1p-31 - 1);
}

}  // namespace espalier::lanes
