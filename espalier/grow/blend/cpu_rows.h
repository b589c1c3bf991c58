// The inner loops of blending on the CPU (cpu.h), over the values of one sample, compiled for several vector
// units and chosen by what this machine has.
//
// Kept true: results may lie where an operand lies, value for value. Values go through in whole blocks, the
// last one filled up: so the bits of a value depend on nothing but what it is made from, and a sum's on its
// sample.
#pragma once

#include <cstdint>
#include <type_traits>

#include "espalier/grow/blend/rule.h"

namespace espalier::grow {

// What one value is computed in.
template <class T>
using blend_wide_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
struct BlendRows {
  using W = blend_wide_t<T>;
  // out = a + b.
  void (*add)(const T* a, const T* b, int64_t n, T* out);
  // out = h and s by an arithmetic rule.
  void (*blend)(BlendRule rule, W weight, const T* h, const T* s, int64_t n, T* out);
  // Their gradients; returns the sum of grad (s - h), a gate's.
  double (*blend_back)(BlendRule rule, W weight, const T* grad, const T* h, const T* s, int64_t n, T* grad_h,
                       T* grad_s);
};

// For float, double, c10::BFloat16 and c10::Half.
template <class T>
const BlendRows<T>& blend_rows();

}  // namespace espalier::grow
