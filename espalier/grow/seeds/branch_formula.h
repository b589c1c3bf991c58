// What lane_branch does to one value: the arithmetic that kernels and the tests of the CPU share.
#pragma once

#include <cmath>
#include <cstdint>

#include "espalier/core/host_device.h"

namespace espalier::grow {

// a and b: two branches, or a gradient and what was saved for it; curves have no b.
enum class Formula : uint8_t {
  kSum,           // a + b; the gradient of a fork
  kRelu,          // relu(a)
  kSigmoid,       // sigmoid(a)
  kTanh,          // tanh(a)
  kWhereOutput,   // a where the output b of a ReLU is above 0
  kSigmoidSlope,  // a times the slope of the sigmoid whose value is b
  kTanhSlope,     // a times the slope of the tanh whose value is b
};

constexpr bool has_second(Formula formula) {
  return formula != Formula::kRelu && formula != Formula::kSigmoid && formula != Formula::kTanh;
}

// Comparisons are torch's: a NaN passes.
template <Formula kFormula, class W>
ESPALIER_HOST_DEVICE W formula_of(W a, W b) {
  switch (kFormula) {
    case Formula::kSum:
      return a + b;
    case Formula::kRelu:
      return a <= W(0) ? W(0) : a;
    case Formula::kSigmoid:
      return W(1) / (W(1) + std::exp(-a));
    case Formula::kTanh:
      return std::tanh(a);
    case Formula::kWhereOutput:
      return b <= W(0) ? W(0) : a;
    case Formula::kSigmoidSlope:
      return a * (W(1) - b) * b;
    case Formula::kTanhSlope:
      return a * (W(1) - b * b);
  }
  return a;
}

// x + t (y - x).
template <class W>
ESPALIER_HOST_DEVICE W mixed(W x, W y, W t) {
  return x + t * (y - x);
}

}  // namespace espalier::grow
