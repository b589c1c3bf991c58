// Plain loops over blocks of a fixed length, which the compiler turns into vectors of each unit.
#include "espalier/grow/blend/cpu_rows.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace espalier::grow {
namespace {

constexpr int kBlockValues = 64;  // values

template <class T>
struct ValueBlock {
  blend_wide_t<T> value[kBlockValues];

  // Zeros behind the last.
  [[gnu::always_inline]] inline void load(const T* from, int64_t count) {
    if (count >= kBlockValues) {
      for (int i = 0; i < kBlockValues; ++i) value[i] = static_cast<blend_wide_t<T>>(from[i]);
      return;
    }
    for (int i = 0; i < kBlockValues; ++i) value[i] = i < count ? static_cast<blend_wide_t<T>>(from[i]) : 0;
  }
  [[gnu::always_inline]] inline void store(T* to, int64_t count) const {
    if (count >= kBlockValues) {
      for (int i = 0; i < kBlockValues; ++i) to[i] = static_cast<T>(value[i]);
      return;
    }
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(value[i]);
  }
};

// e to the power of 2 x, x from 0 to 9.1: by Cephes' expf.
[[gnu::always_inline]] inline float exp_of_twice(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest whole number in the last bits
  const float shifted = x * (2 * 1.44269504088896341f) + kRound, whole = shifted - kRound;
  const float r = 2 * x - whole * 0.693359375f + whole * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127) << 23;
  return (p * r * r + r + 1) * std::bit_cast<float>(exponent);
}

// Within two units of the last place; without a branch, so that a vector does as many at once as it has
// places: a third of the C library's time.
[[gnu::always_inline]] inline float tanh_of(float x) {
  constexpr float kLargest = 9.1f;  // beyond it the result is 1
  const float far = std::fabs(x), squared = far * far;
  float p = -5.70498872745e-3f;
  p = p * squared + 2.06390887954e-2f;
  p = p * squared - 5.37397155531e-2f;
  p = p * squared + 1.33314422036e-1f;
  p = p * squared - 3.33332819422e-1f;
  const float near_zero = p * squared * far + far;
  const float bounded = far > kLargest ? kLargest : far;  // a NaN stays
  const float away = 1 - 2 / (exp_of_twice(bounded) + 1);
  return std::copysign(far < 0.625f ? near_zero : away, x);
}

[[gnu::always_inline]] inline double tanh_of(double x) {
  return std::tanh(x);
}

template <class T>
[[gnu::always_inline]] inline void add_blocks(const T* a, const T* b, int64_t n, T* out) {
  for (int64_t begin = 0; begin < n; begin += kBlockValues) {
    ValueBlock<T> sum, added;
    sum.load(a + begin, n - begin);
    added.load(b + begin, n - begin);
    for (int i = 0; i < kBlockValues; ++i) sum.value[i] += added.value[i];
    sum.store(out + begin, n - begin);
  }
}

// Calls body(h, s, begin, count) for all blocks.
template <class T, class Body>
[[gnu::always_inline]] inline void each_pair(const T* h, const T* s, int64_t n, const Body& body) {
  for (int64_t begin = 0; begin < n; begin += kBlockValues) {
    ValueBlock<T> own, other;
    own.load(h + begin, n - begin);
    other.load(s + begin, n - begin);
    body(own, other, begin, n - begin);
  }
}

template <class T>
[[gnu::always_inline]] inline void tanh_of_difference(const ValueBlock<T>& h, const ValueBlock<T>& s,
                                                      ValueBlock<T>& t) {
  for (int i = 0; i < kBlockValues; ++i) t.value[i] = tanh_of(s.value[i] - h.value[i]);
}

template <class T>
[[gnu::always_inline]] inline void blend_blocks(BlendRule rule, blend_wide_t<T> weight, const T* h,
                                                const T* s, int64_t n, T* out) {
  each_pair(
      h, s, n,
      [&](ValueBlock<T> & own, const ValueBlock<T>& other, int64_t begin, int64_t count)
          __attribute__((always_inline)) {
            if (rule == BlendRule::kProduct) {
              ValueBlock<T> t;
              tanh_of_difference(own, other, t);
              for (int i = 0; i < kBlockValues; ++i)
                own.value[i] = product_of(weight, own.value[i], t.value[i]);
            } else {
              for (int i = 0; i < kBlockValues; ++i)
                own.value[i] = sum_of(weight, own.value[i], other.value[i]);
            }
            own.store(out + begin, count);
          });
}

template <class T>
[[gnu::always_inline]] inline double blend_back_blocks(BlendRule rule, blend_wide_t<T> weight, const T* grad,
                                                       const T* h, const T* s, int64_t n, T* grad_h,
                                                       T* grad_s) {
  double sums[kBlockValues] = {};
  each_pair(
      h, s, n,
      [&](ValueBlock<T> & own, ValueBlock<T> & other, int64_t begin, int64_t count)
          __attribute__((always_inline)) {
            ValueBlock<T> given;
            given.load(grad + begin, count);
            for (int i = 0; i < kBlockValues; ++i)
              sums[i] += static_cast<double>(given.value[i]) *
                         (static_cast<double>(other.value[i]) - static_cast<double>(own.value[i]));
            if (rule == BlendRule::kProduct) {
              ValueBlock<T> t;
              tanh_of_difference(own, other, t);
              for (int i = 0; i < kBlockValues; ++i) {
                const auto both = product_gradient(weight, own.value[i], t.value[i], given.value[i]);
                own.value[i] = both.grad_h;
                other.value[i] = both.grad_s;
              }
            } else {
              for (int i = 0; i < kBlockValues; ++i) {
                const auto both = sum_gradient(weight, given.value[i]);
                own.value[i] = both.grad_h;
                other.value[i] = both.grad_s;
              }
            }
            own.store(grad_h + begin, count);
            other.store(grad_s + begin, count);
          });
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

// Only a function can have a target, so each unit names its own.
#define ESPALIER_BLEND_ROWS(Unit, ...)                                                                    \
  template <class T>                                                                                      \
  struct Unit {                                                                                           \
    using W = blend_wide_t<T>;                                                                            \
    __VA_ARGS__ static void add(const T* a, const T* b, int64_t n, T* out) {                              \
      add_blocks(a, b, n, out);                                                                           \
    }                                                                                                     \
    __VA_ARGS__ static void blend(BlendRule rule, W weight, const T* h, const T* s, int64_t n, T* out) {  \
      blend_blocks(rule, weight, h, s, n, out);                                                           \
    }                                                                                                     \
    __VA_ARGS__ static double blend_back(BlendRule rule, W weight, const T* grad, const T* h, const T* s, \
                                         int64_t n, T* grad_h, T* grad_s) {                               \
      return blend_back_blocks(rule, weight, grad, h, s, n, grad_h, grad_s);                              \
    }                                                                                                     \
    static BlendRows<T> all() {                                                                           \
      return {&add, &blend, &blend_back};                                                                 \
    }                                                                                                     \
  }

ESPALIER_BLEND_ROWS(AnyBlendUnit, );
#if defined(__x86_64__)
ESPALIER_BLEND_ROWS(Avx2Blend, [[gnu::target("avx2,fma,f16c")]]);
ESPALIER_BLEND_ROWS(Avx512Blend,
                    [[gnu::target("avx512f,avx512vl,avx512bw,avx512dq,fma,f16c,prefer-vector-width=512")]]);
#endif

template <class T>
BlendRows<T> choose_blend_rows() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("f16c"))
    return Avx512Blend<T>::all();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    return Avx2Blend<T>::all();
#endif
  return AnyBlendUnit<T>::all();
}

}  // namespace

template <class T>
const BlendRows<T>& blend_rows() {
  static const BlendRows<T> chosen = choose_blend_rows<T>();
  return chosen;
}

template const BlendRows<float>& blend_rows();
template const BlendRows<double>& blend_rows();
template const BlendRows<c10::BFloat16>& blend_rows();
template const BlendRows<c10::Half>& blend_rows();

}  // namespace espalier::grow
