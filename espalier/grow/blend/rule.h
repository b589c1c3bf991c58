// What a blend does to one lane, and to one value: the arithmetic that kernels and the tests of the CPU
// share.
#pragma once

#include <cmath>

#include "espalier/core/host_device.h"
#include "espalier/core/seed_stage.h"

namespace espalier::grow {

enum class BlendRule : uint8_t {
  kThrough,   // h itself, and the seed gets no gradient
  kIsolated,  // h itself, and the gradient goes to both
  kSum,       // h + w (s - h); w is a, or a g
  kProduct,   // h (1 + w tanh(s - h))
};

// One lane's coefficients, as BlendTable has them.
struct LaneBlend {
  float amplitude = 0;
  BlendOperator blend_operator = BlendOperator::kAdd;
  bool isolated = false;

  // For a lane that holds a seed.
  ESPALIER_HOST_DEVICE BlendRule rule() const {
    if (isolated) return BlendRule::kIsolated;
    if (amplitude == 0) return BlendRule::kThrough;
    return blend_operator == BlendOperator::kMultiply ? BlendRule::kProduct : BlendRule::kSum;
  }
};

ESPALIER_HOST_DEVICE bool is_arithmetic(BlendRule rule) {
  return rule == BlendRule::kSum || rule == BlendRule::kProduct;
}

// By an arithmetic rule.
template <class W>
ESPALIER_HOST_DEVICE W blended(BlendRule rule, W weight, W h, W s) {
  return rule == BlendRule::kProduct ? h * (W(1) + weight * std::tanh(s - h)) : h + weight * (s - h);
}

template <class W>
struct BlendGradient {
  W grad_h, grad_s;
};

// The same, backward: op.cpp has the formulas.
template <class W>
ESPALIER_HOST_DEVICE BlendGradient<W> blend_gradient(BlendRule rule, W weight, W h, W s, W grad) {
  if (rule != BlendRule::kProduct) return {grad * (W(1) - weight), grad * weight};
  const W t = std::tanh(s - h), slope = h * weight * (W(1) - t * t);
  return {grad * (W(1) + weight * t - slope), grad * slope};
}

}  // namespace espalier::grow
