// Plain loops, which the compiler turns into vectors of each unit; where channels are compared across pixels,
// eight at a time.
#include "espalier/lanes/norm/cpu_rows.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstring>

namespace espalier::lanes {
namespace {

// Calls body(values, entry): runs of a row that meet entries 0, 1, ... of the period.
template <class Body>
[[gnu::always_inline]] inline void each_run(int64_t n, int64_t period, const Body& body) {
  for (int64_t begin = 0; begin < n; begin += period) body(begin, std::min(period, n - begin));
}

template <class T>
[[gnu::always_inline]] inline float wide(T value) {
  return static_cast<float>(value);
}

template <class T>
[[gnu::always_inline]] inline void add_row(const T* __restrict x, int64_t n, int64_t period,
                                           double* __restrict acc) {
  each_run(
      n, period, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; ++i) acc[i] += static_cast<double>(wide(x[begin + i]));
      });
}

template <class T>
[[gnu::always_inline]] inline void add_squares_row(const T* __restrict x, int64_t n, int64_t period,
                                                   const double* __restrict mean, double* __restrict acc) {
  each_run(
      n, period, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; ++i) {
          const double far = static_cast<double>(wide(x[begin + i])) - mean[i];
          acc[i] += far * far;
        }
      });
}

// In double: rounded once, whatever the mean is that b takes away.
template <class T>
[[gnu::always_inline]] inline void apply_row(const T* __restrict x, int64_t n, int64_t period,
                                             const double* __restrict a, const double* __restrict b,
                                             const T* __restrict residual, bool relu, T* __restrict out) {
  const auto normed = [&](int64_t begin, int64_t i) __attribute__((always_inline)) {
    return static_cast<double>(wide(x[begin + i])) * a[i] + b[i];
  };
  each_run(
      n, period, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        if (residual) {
          for (int64_t i = 0; i < count; ++i) {
            const auto y =
                static_cast<float>(normed(begin, i) + static_cast<double>(wide(residual[begin + i])));
            out[begin + i] = static_cast<T>(relu && y <= 0 ? 0.0f : y);  // a NaN stays
          }
        } else if (relu) {
          for (int64_t i = 0; i < count; ++i) {
            const auto y = static_cast<float>(normed(begin, i));
            out[begin + i] = static_cast<T>(y <= 0 ? 0.0f : y);
          }
        } else {
          for (int64_t i = 0; i < count; ++i)
            out[begin + i] = static_cast<T>(static_cast<float>(normed(begin, i)));
        }
      });
}

template <int kStep>
using Floats __attribute__((vector_size(kStep * sizeof(float)))) = float;
template <int kStep>
using Places __attribute__((vector_size(kStep * sizeof(int32_t)))) = int32_t;
template <int kStep>
using Bytes __attribute__((vector_size(kStep))) = uint8_t;
constexpr int32_t kNowhere = 4;  // behind the four pixels of a window

// Vectors are passed by reference: by value they would go other ways on other units.
template <int kStep, class T>
[[gnu::always_inline]] inline void load(const T* from, Floats<kStep>& values) {
  if constexpr (sizeof(T) == sizeof(float)) {
    std::memcpy(&values, from, sizeof(values));
  } else {
    for (int i = 0; i < kStep; ++i) values[i] = wide(from[i]);
  }
}

template <int kStep, class T>
[[gnu::always_inline]] inline void store(const Floats<kStep>& values, T* to) {
  if constexpr (sizeof(T) == sizeof(float)) {
    std::memcpy(to, &values, sizeof(values));
  } else {
    for (int i = 0; i < kStep; ++i) to[i] = static_cast<T>(values[i]);
  }
}

// The largest of a window so far, and which of its pixels it is: the first of equals, but the last NaN, as
// torch's pool has it.
template <int kStep>
struct Largest {
  Floats<kStep> value;
  Places<kStep> place;

  [[gnu::always_inline]] inline void meet(const Floats<kStep>& other, int32_t at) {
    const Places<kStep> is_larger = (other > value) | (other != other);
    value = is_larger ? other : value;
    place = is_larger ? Places<kStep>{} + at : place;
  }
};

template <int kStep, class T>
[[gnu::always_inline]] inline void find_largest(const T* top, const T* bottom, int64_t channels,
                                                Largest<kStep>& most) {
  Floats<kStep> other;
  load<kStep>(top, most.value);
  most.place = Places<kStep>{};
  load<kStep>(top + channels, other);
  most.meet(other, 1);
  load<kStep>(bottom, other);
  most.meet(other, 2);
  load<kStep>(bottom + channels, other);
  most.meet(other, 3);
}

template <int kStep, class T>
[[gnu::always_inline]] inline void pool_steps(const T* top, const T* bottom, int64_t pixels, int64_t channels,
                                              bool relu, T* out, uint8_t* places) {
  for (int64_t pixel = 0; pixel < pixels; ++pixel)
    for (int64_t c = 0; c < channels; c += kStep) {
      const int64_t from = 2 * pixel * channels + c, to = pixel * channels + c;
      Largest<kStep> most;
      find_largest<kStep>(top + from, bottom + from, channels, most);
      store<kStep>(most.value, out + to);
      // <= and not >: the gradient of a NaN output passes, as torch's.
      const Places<kStep> nowhere = Places<kStep>{} + kNowhere,
                          kept = (most.value <= 0) ? nowhere : most.place;
      const auto bytes = __builtin_convertvector(relu ? kept : most.place, Bytes<kStep>);
      std::memcpy(places + to, &bytes, sizeof(bytes));
    }
}

template <int kStep, class T>
[[gnu::always_inline]] inline void unpool_steps(const uint8_t* places, const T* grad, int64_t pixels,
                                                int64_t channels, float* to_top, float* to_bottom) {
  for (int64_t pixel = 0; pixel < pixels; ++pixel)
    for (int64_t c = 0; c < channels; c += kStep) {
      const int64_t from = pixel * channels + c, to = 2 * pixel * channels + c;
      Floats<kStep> given;
      load<kStep>(grad + from, given);
      Bytes<kStep> bytes;
      std::memcpy(&bytes, places + from, sizeof(bytes));
      const Places<kStep> place = __builtin_convertvector(bytes, Places<kStep>);
      const auto put = [&](int32_t at, float* part_to) __attribute__((always_inline)) {
        const Floats<kStep> zero{}, part = place == at ? given : zero;
        store<kStep>(part, part_to);
      };
      put(0, to_top + to);
      put(1, to_top + to + channels);
      put(2, to_bottom + to);
      put(3, to_bottom + to + channels);
    }
}

template <class T>
[[gnu::always_inline]] inline void mask_row(const T* __restrict grad, const T* __restrict out, int64_t n,
                                            float* __restrict to) {
  if (!out) {
    for (int64_t i = 0; i < n; ++i) to[i] = wide(grad[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i] = wide(out[i]) <= 0 ? 0.0f : wide(grad[i]);
}

template <class T>
[[gnu::always_inline]] inline void add_gradients_row(const float* __restrict grad, const T* __restrict x,
                                                     int64_t n, int64_t period, const double* __restrict mean,
                                                     double* __restrict sums, double* __restrict dots) {
  each_run(
      n, period, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; ++i) {
          const auto g = static_cast<double>(grad[begin + i]);
          sums[i] += g;
          dots[i] += g * (static_cast<double>(wide(x[begin + i])) - mean[i]);
        }
      });
}

template <class T>
[[gnu::always_inline]] inline void grad_x_row(const float* __restrict grad, const T* __restrict x, int64_t n,
                                              int64_t period, const float* __restrict mean,
                                              const float* __restrict shift, const float* __restrict slope,
                                              const float* __restrict factor, T* __restrict out) {
  each_run(
      n, period, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; ++i)
          out[begin + i] = static_cast<T>(
              (grad[begin + i] - shift[i] - (wide(x[begin + i]) - mean[i]) * slope[i]) * factor[i]);
      });
}

template <class T>
[[gnu::always_inline]] inline void cast_row(const float* __restrict values, int64_t n, T* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(values[i]);
}

template <class T>
[[gnu::always_inline]] inline void rectify_row(const T* __restrict x, int64_t n, T* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = wide(x[i]) <= 0 ? static_cast<T>(0.0f) : x[i];  // a NaN stays
}

template <class T>
[[gnu::always_inline]] inline void grad_x_group_row(const float* __restrict grad, const T* __restrict x,
                                                    int64_t n, int64_t period, const float* __restrict mean,
                                                    const float* __restrict shift,
                                                    const float* __restrict slope,
                                                    const float* __restrict factor, bool rectified,
                                                    T* __restrict out) {
  const auto gradient = [&](int64_t begin, int64_t i) __attribute__((always_inline)) {
    return grad[begin + i] * factor[i] - shift[i] - (wide(x[begin + i]) - mean[i]) * slope[i];
  };
  each_run(
      n, period, [&](int64_t begin, int64_t count) __attribute__((always_inline)) {
        if (rectified) {
          for (int64_t i = 0; i < count; ++i) {
            const float passed = gradient(begin, i);
            out[begin + i] = static_cast<T>(wide(x[begin + i]) <= 0 ? 0.0f : passed);
          }
        } else {
          for (int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<T>(gradient(begin, i));
        }
      });
}

// Only a function can have a target, so each unit names its own.
#define ESPALIER_NORM_ROWS(Unit, ...)                                                                        \
  template <class T>                                                                                         \
  struct Unit {                                                                                              \
    __VA_ARGS__ static void add(const T* x, int64_t n, int64_t period, double* acc) {                        \
      add_row(x, n, period, acc);                                                                            \
    }                                                                                                        \
    __VA_ARGS__ static void add_squares(const T* x, int64_t n, int64_t period, const double* mean,           \
                                        double* acc) {                                                       \
      add_squares_row(x, n, period, mean, acc);                                                              \
    }                                                                                                        \
    __VA_ARGS__ static void apply(const T* x, int64_t n, int64_t period, const double* a, const double* b,   \
                                  const T* residual, bool relu, T* out) {                                    \
      apply_row(x, n, period, a, b, residual, relu, out);                                                    \
    }                                                                                                        \
    __VA_ARGS__ static void pool(const T* top, const T* bottom, int64_t pixels, int64_t channels, bool relu, \
                                 T* out, uint8_t* places) {                                                  \
      if (channels % 8 == 0)                                                                                 \
        pool_steps<8>(top, bottom, pixels, channels, relu, out, places);                                     \
      else                                                                                                   \
        pool_steps<1>(top, bottom, pixels, channels, relu, out, places);                                     \
    }                                                                                                        \
    __VA_ARGS__ static void unpool(const uint8_t* places, const T* grad, int64_t pixels, int64_t channels,   \
                                   float* to_top, float* to_bottom) {                                        \
      if (channels % 8 == 0)                                                                                 \
        unpool_steps<8>(places, grad, pixels, channels, to_top, to_bottom);                                  \
      else                                                                                                   \
        unpool_steps<1>(places, grad, pixels, channels, to_top, to_bottom);                                  \
    }                                                                                                        \
    __VA_ARGS__ static void mask(const T* grad, const T* out, int64_t n, float* to) {                        \
      mask_row(grad, out, n, to);                                                                            \
    }                                                                                                        \
    __VA_ARGS__ static void add_gradients(const float* grad, const T* x, int64_t n, int64_t period,          \
                                          const double* mean, double* sums, double* dots) {                  \
      add_gradients_row(grad, x, n, period, mean, sums, dots);                                               \
    }                                                                                                        \
    __VA_ARGS__ static void grad_x(const float* grad, const T* x, int64_t n, int64_t period,                 \
                                   const float* mean, const float* shift, const float* slope,                \
                                   const float* factor, T* out) {                                            \
      grad_x_row(grad, x, n, period, mean, shift, slope, factor, out);                                       \
    }                                                                                                        \
    __VA_ARGS__ static void cast(const float* values, int64_t n, T* out) {                                   \
      cast_row(values, n, out);                                                                              \
    }                                                                                                        \
    __VA_ARGS__ static void rectify(const T* x, int64_t n, T* out) {                                         \
      rectify_row(x, n, out);                                                                                \
    }                                                                                                        \
    __VA_ARGS__ static void grad_x_group(const float* grad, const T* x, int64_t n, int64_t period,           \
                                         const float* mean, const float* shift, const float* slope,          \
                                         const float* factor, bool rectified, T* out) {                      \
      grad_x_group_row(grad, x, n, period, mean, shift, slope, factor, rectified, out);                      \
    }                                                                                                        \
    static NormRows<T> all() {                                                                               \
      return {&add,           &add_squares, &apply, &pool,    &unpool,      &mask,                           \
              &add_gradients, &grad_x,      &cast,  &rectify, &grad_x_group};                                \
    }                                                                                                        \
  }

ESPALIER_NORM_ROWS(AnyUnit, );
#if defined(__x86_64__)
ESPALIER_NORM_ROWS(Avx2, [[gnu::target("avx2,fma")]]);
ESPALIER_NORM_ROWS(Avx512, [[gnu::target("avx512f,avx512vl,avx512bw,avx512dq,fma,prefer-vector-width=512")]]);
#endif

template <class T>
NormRows<T> choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return Avx512<T>::all();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Avx2<T>::all();
#endif
  return AnyUnit<T>::all();
}

}  // namespace

template <class T>
const NormRows<T>& norm_rows() {
  static const NormRows<T> chosen = choose<T>();
  return chosen;
}

template const NormRows<float>& norm_rows();
template const NormRows<c10::BFloat16>& norm_rows();

}  // namespace espalier::lanes
