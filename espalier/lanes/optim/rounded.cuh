// Products and sums that are rounded once each: a fused multiply-add would give other bits than the CPU's.
#pragma once

namespace espalier::lanes {

__device__ inline float times(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline float plus(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ inline double times(double a, double b) {
  return __dmul_rn(a, b);
}
__device__ inline double plus(double a, double b) {
  return __dadd_rn(a, b);
}

}  // namespace espalier::lanes
