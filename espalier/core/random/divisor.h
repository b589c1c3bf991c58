// Division by a number known before a kernel is launched: a multiplication and a shift.
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"

namespace espalier {

// n / d == (umulhi(n, multiplier) + n) >> shift for n < 2^31 (Granlund and Montgomery, "Division by invariant
// integers using multiplication", PLDI 1994).
struct Divisor {
  uint32_t divisor = 1;
  uint32_t multiplier = 1;
  uint32_t shift = 0;

  Divisor() = default;
  explicit Divisor(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  ESPALIER_HOST_DEVICE uint32_t quotient(uint32_t n) const {
    return static_cast<uint32_t>(((static_cast<uint64_t>(n) * multiplier >> 32) + n) >> shift);
  }
};

}  // namespace espalier
