// Sixteen bytes at a time, or one value where channels do not allow it; arithmetic in a wider type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "espalier/lanes/kernel.h"

namespace espalier::lanes {

template <class T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};
template <class T>
using wide_t = typename Wide<T>::type;

// What sums over many values are taken in: double for fp32 too, whose own rounding would show.
template <class T>
struct Sum {
  using type = float;
};
template <>
struct Sum<float> {
  using type = double;
};
template <>
struct Sum<double> {
  using type = double;
};
template <class T>
using sum_t = typename Sum<T>::type;

template <class T>
__device__ inline wide_t<T> widen(T value) {
  return static_cast<wide_t<T>>(value);
}
template <>
__device__ inline float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <>
__device__ inline float widen(__half value) {
  return __half2float(value);
}

template <class T>
__device__ inline T narrow(wide_t<T> value) {
  return static_cast<T>(value);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half narrow<__half>(float value) {
  return __float2half_rn(value);
}

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T value[kWidth];
};

template <class T, int kWidth>
__device__ inline void load(wide_t<T> (&to)[kWidth], const T* from) {
  const Pack<T, kWidth> pack = *reinterpret_cast<const Pack<T, kWidth>*>(from);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] = widen<T>(pack.value[i]);
}

template <class T, int kWidth>
__device__ inline void store(T* to, const wide_t<T> (&from)[kWidth]) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.value[i] = narrow<T>(from[i]);
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

// Calls launch with a value of the C++ type that `type` names.
template <class Launch>
cudaError_t for_type(KernelType type, Launch&& launch) {
  switch (type) {
    case KernelType::kF32:
      return launch(float{});
    case KernelType::kF64:
      return launch(double{});
    case KernelType::kBf16:
      return launch(__nv_bfloat16{});
    case KernelType::kF16:
      return launch(__half{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace espalier::lanes
