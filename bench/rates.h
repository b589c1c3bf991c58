// What this very machine copies and multiplies, measured: what floors are worked out from.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bench/harness.h"

namespace espalier::bench {

struct MachineRates {
  double copy_bytes_per_us = 0;     // one large copy; what it reads and what it writes both count
  double product_flops_per_us = 0;  // one large product; a multiplication and an addition are two
  std::string product_type;         // what was multiplied: "bf16"
  std::string sizes;                // what was copied and multiplied, in words

  // What work takes at least: its bytes and its products overlap, so the longer of the two.
  double floor_us(double bytes, double flops) const;
};

// Both rates in the best of several samples. smoke: on tensors that are small enough for a test, whose rates
// say little.
MachineRates measure_rates(c10::Device device, at::ScalarType type, bool smoke);

// "bf16", "fp16" or "fp32".
std::string type_name(at::ScalarType type);

}  // namespace espalier::bench
