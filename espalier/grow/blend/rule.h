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

// By an arithmetic rule; of a product, from the tanh t of s - h.
template <class W>
ESPALIER_HOST_DEVICE W sum_of(W weight, W h, W s) {
  return h + weight * (s - h);
}
template <class W>
ESPALIER_HOST_DEVICE W product_of(W weight, W h, W t) {
  return h * (W(1) + weight * t);
}
template <class W>
ESPALIER_HOST_DEVICE W blended(BlendRule rule, W weight, W h, W s) {
  return rule == BlendRule::kProduct ? product_of(weight, h, std::tanh(s - h)) : sum_of(weight, h, s);
}

template <class W>
struct BlendGradient {
  W grad_h, grad_s;
};

// The same, backward. With G the gradient of the output, w the weight and t as above:
//   a sum      h: G (1 - w),  s: G w,  and of a gate: a sum of G (s - h);
//   a product  h: G (1 + w t - h w (1 - t^2)),  s: G h w (1 - t^2).
template <class W>
ESPALIER_HOST_DEVICE BlendGradient<W> sum_gradient(W weight, W grad) {
  return {grad * (W(1) - weight), grad * weight};
}
template <class W>
ESPALIER_HOST_DEVICE BlendGradient<W> product_gradient(W weight, W h, W t, W grad) {
  const W slope = h * weight * (W(1) - t * t);
  return {grad * (W(1) + weight * t - slope), grad * slope};
}
template <class W>
ESPALIER_HOST_DEVICE BlendGradient<W> blend_gradient(BlendRule rule, W weight, W h, W s, W grad) {
  return rule == BlendRule::kProduct ? product_gradient(weight, h, std::tanh(s - h), grad)
                                     : sum_gradient(weight, grad);
}

}  // namespace espalier::grow
