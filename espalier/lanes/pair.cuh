// Two values of a 16-bit type in one register: worked on at once, where one at a time would take twice the
// instructions, and narrowing several times as many.
#pragma once

#include <cstring>

#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {

template <class T>
struct PairOf;
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
};
template <>
struct PairOf<__half> {
  using type = __half2;
};
template <class T>
using pair_t = typename PairOf<T>::type;

// Whether a vector of kWidth values is handled as pairs.
template <class T, int kWidth>
inline constexpr bool kIsPaired = sizeof(T) == 2 && kWidth % 2 == 0;

// The values 2 p and 2 p + 1 of a vector.
template <class T, int kWidth>
__device__ inline pair_t<T> pair_of(const Pack<T, kWidth>& pack, int p) {
  pair_t<T> pair;
  memcpy(&pair, &pack.value[2 * p], sizeof(pair));
  return pair;
}
template <class T, int kWidth>
__device__ inline void set_pair(Pack<T, kWidth>& pack, int p, pair_t<T> pair) {
  memcpy(&pack.value[2 * p], &pair, sizeof(pair));
}

template <class T>
__device__ inline pair_t<T> narrow_pair(float low, float high);
template <>
__device__ inline __nv_bfloat162 narrow_pair<__nv_bfloat16>(float low, float high) {
  return __floats2bfloat162_rn(low, high);
}
template <>
__device__ inline __half2 narrow_pair<__half>(float low, float high) {
  return __floats2half2_rn(low, high);
}
template <class P>
__device__ inline float widen_low(P pair) {
  return __low2float(pair);
}
template <class P>
__device__ inline float widen_high(P pair) {
  return __high2float(pair);
}

template <class P>
__device__ inline uint32_t bits_of(P pair) {
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}
template <class P>
__device__ inline P from_bits(uint32_t bits) {
  P pair;
  memcpy(&pair, &bits, sizeof(bits));
  return pair;
}

// Where a mask has ones. Masks have 16 of them for each value that passes.
template <class P>
__device__ inline P where(uint32_t mask, P pair) {
  return from_bits<P>(bits_of(pair) & mask);
}
template <class P>
__device__ inline P where(uint32_t mask, P pair, P other) {
  return from_bits<P>((bits_of(pair) & mask) | (bits_of(other) & ~mask));
}

// max(y, 0); a NaN stays.
template <class P>
__device__ inline P rectified(P y) {
  return __hmax2_nan(y, P{});
}
// Where a ReLU's output is above 0, or NaN.
template <class P>
__device__ inline uint32_t above_zero(P y) {
  return __hgtu2_mask(y, P{});
}

// Of four: the largest, and masks of the first three, which say where it was found: at the first of equals,
// at the last of the four where no mask before has ones. A NaN wins, the last of several, as in torch.
template <class P>
struct Winners {
  P best;
  uint32_t first, second, third;

  __device__ explicit Winners(const P (&y)[4])
      : best(__hmax2_nan(__hmax2_nan(y[0], y[1]), __hmax2_nan(y[2], y[3]))),
        first(__heq2_mask(y[0], best)),
        second(__heq2_mask(y[1], best)),
        third(__heq2_mask(y[2], best)) {
    if (__hbeq2(best, best)) return;
    // What is equal to nothing: the last of the NaNs.
    const uint32_t nan[4] = {__hneu2_mask(y[0], y[0]), __hneu2_mask(y[1], y[1]), __hneu2_mask(y[2], y[2]),
                             __hneu2_mask(y[3], y[3])};
    first |= nan[0] & ~(nan[1] | nan[2] | nan[3]);
    second |= nan[1] & ~(nan[2] | nan[3]);
    third |= nan[2] & ~nan[3];
  }
  __device__ P of(const P (&values)[4]) const {
    return where(first, values[0], where(second, values[1], where(third, values[2], values[3])));
  }
  // Where value i won.
  __device__ uint32_t mask(int i) const {
    return i == 0   ? first
           : i == 1 ? second & ~first
           : i == 2 ? third & ~(first | second)
                    : ~(first | second | third);
  }
};

}  // namespace espalier::lanes
