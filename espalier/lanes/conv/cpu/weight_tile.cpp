// Vectors are the compiler's own (vector_size), so one source serves every unit.
#include "espalier/lanes/conv/cpu/weight_tile.h"

#include <algorithm>
#include <cstring>

namespace espalier::lanes {
namespace {

template <class T, int kWidth>
struct Vector {
  using Type __attribute__((vector_size(kWidth * sizeof(T)))) = T;
};

// Inlined into functions of any target, as the loops below.
[[gnu::always_inline]] inline int64_t offset_of(int64_t row, int64_t rows_a_sample, const TileSteps& steps) {
  return row / rows_a_sample * steps.sample + row % rows_a_sample * steps.row;
}

// Not inlined: unrolled beside the loops over pixels it would take registers from them.
template <class T>
[[gnu::noinline]] void add_apart(const T* values, int64_t count, double* sums, int64_t step) {
  for (int64_t i = 0; i < count; ++i) sums[i * step] += static_cast<double>(values[i]);
}

// acc[i][v] += a[i] * b[v], pixel by pixel.
template <class T, int kWidth, int kHeight, int kVectors>
[[gnu::always_inline]] inline void dense_tile(const TileWalk& walk, const T* a, const T* b, double* sums,
                                              int64_t columns) {
  using V = typename Vector<T, kWidth>::Type;
  for (int64_t row = walk.first_row; row < walk.last_row;) {
    const int64_t end = row + walk.rows_a_sum < walk.last_row ? row + walk.rows_a_sum : walk.last_row;
    V acc[kHeight][kVectors] = {};
    for (; row < end; ++row) {
      const T* from_a = a + offset_of(row, walk.rows_a_sample, walk.a);
      const T* from_b = b + offset_of(row, walk.rows_a_sample, walk.b);
      for (int64_t pixel = 0; pixel < walk.pixels; ++pixel, from_a += walk.a.pixel, from_b += walk.b.pixel) {
        V values[kVectors];
        for (int v = 0; v < kVectors; ++v) std::memcpy(&values[v], from_b + v * kWidth, sizeof(V));
        for (int i = 0; i < kHeight; ++i)
          for (int v = 0; v < kVectors; ++v) acc[i][v] += from_a[i] * values[v];
      }
    }
    for (int i = 0; i < kHeight; ++i) {
      T done[kVectors * kWidth];
      std::memcpy(done, acc[i], sizeof(done));
      double* to = sums + i * walk.sum_a;
      if (walk.sum_b == 1)
        for (int64_t j = 0; j < columns; ++j) to[j] += static_cast<double>(done[j]);
      else
        add_apart(done, columns, to, walk.sum_b);
    }
  }
}

// acc[r][tap][i] += a[i] * b[r][tap][i], pixel by pixel.
template <class T, int kWidth, int kRows, int kTaps>
[[gnu::always_inline]] inline void depthwise_tile(const TileWalk& walk, const T* a, const T* b, double* sums,
                                                  int64_t columns) {
  using V = typename Vector<T, kWidth>::Type;
  for (int64_t row = walk.first_row; row < walk.last_row;) {
    const int64_t end = row + walk.rows_a_sum < walk.last_row ? row + walk.rows_a_sum : walk.last_row;
    V acc[kRows][kTaps] = {};
    for (; row < end; ++row) {
      const T* from_a = a + offset_of(row, walk.rows_a_sample, walk.a);
      const T* from_b = b + offset_of(row, walk.rows_a_sample, walk.b);
      for (int64_t pixel = 0; pixel < walk.pixels; ++pixel, from_a += walk.a.pixel, from_b += walk.b.pixel) {
        V filters;
        std::memcpy(&filters, from_a, sizeof(V));
        for (int r = 0; r < kRows; ++r)
          for (int tap = 0; tap < kTaps; ++tap) {
            V values;
            std::memcpy(&values, from_b + r * walk.tap_row + tap * walk.tap, sizeof(V));
            acc[r][tap] += filters * values;
          }
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int tap = 0; tap < kTaps; ++tap) {
        T done[kWidth];
        std::memcpy(done, &acc[r][tap], sizeof(done));
        const int64_t skipped = kWidth - columns;
        add_apart(done + skipped, columns, sums + skipped * walk.sum_a + r * walk.sum_tap_row + tap,
                  walk.sum_a);
      }
  }
}

// The loops, compiled for a vector unit. Only a function can have a target, so each unit names its own.
struct AnyUnit {
  template <class T, int kWidth, int kHeight, int kVectors>
  static void dense(const TileWalk& walk, const T* a, const T* b, double* sums, int64_t columns) {
    dense_tile<T, kWidth, kHeight, kVectors>(walk, a, b, sums, columns);
  }
  template <class T, int kWidth, int kRows, int kTaps>
  static void depthwise(const TileWalk& walk, const T* a, const T* b, double* sums, int64_t columns) {
    depthwise_tile<T, kWidth, kRows, kTaps>(walk, a, b, sums, columns);
  }
};

#if defined(__x86_64__)
struct Avx2 {
  template <class T, int kWidth, int kHeight, int kVectors>
  [[gnu::target("avx2,fma")]] static void dense(const TileWalk& walk, const T* a, const T* b, double* sums,
                                                int64_t columns) {
    dense_tile<T, kWidth, kHeight, kVectors>(walk, a, b, sums, columns);
  }
  template <class T, int kWidth, int kRows, int kTaps>
  [[gnu::target("avx2,fma")]] static void depthwise(const TileWalk& walk, const T* a, const T* b,
                                                    double* sums, int64_t columns) {
    depthwise_tile<T, kWidth, kRows, kTaps>(walk, a, b, sums, columns);
  }
};

struct Avx512 {
  template <class T, int kWidth, int kHeight, int kVectors>
  [[gnu::target("avx512f,avx512vl,fma")]] static void dense(const TileWalk& walk, const T* a, const T* b,
                                                            double* sums, int64_t columns) {
    dense_tile<T, kWidth, kHeight, kVectors>(walk, a, b, sums, columns);
  }
  template <class T, int kWidth, int kRows, int kTaps>
  [[gnu::target("avx512f,avx512vl,fma")]] static void depthwise(const TileWalk& walk, const T* a, const T* b,
                                                                double* sums, int64_t columns) {
    depthwise_tile<T, kWidth, kRows, kTaps>(walk, a, b, sums, columns);
  }
};
#endif

template <class T, class Unit, int kBytes, int kHeight>
TileKernels<T> kernels_of() {
  constexpr int kWidth = kBytes / sizeof(T);
  // Not wider than the channels there are, often 8.
  constexpr int kChannels = std::min(kBytes, 32) / static_cast<int>(sizeof(T));
  return {
      .width = kWidth,
      .height = kHeight,
      .dense = {{&Unit::template dense<T, kWidth, 1, 1>, &Unit::template dense<T, kWidth, 1, 2>,
                 &Unit::template dense<T, kWidth, 1, 3>},
                {&Unit::template dense<T, kWidth, kHeight, 1>, &Unit::template dense<T, kWidth, kHeight, 2>,
                 &Unit::template dense<T, kWidth, kHeight, 3>}},
      .depthwise_width = kChannels,
      .depthwise = {
          {&Unit::template depthwise<T, 1, 1, 1>, &Unit::template depthwise<T, 1, 3, 3>},
          {&Unit::template depthwise<T, kChannels, 1, 1>, &Unit::template depthwise<T, kChannels, 3, 3>}}};
}

template <class T>
TileKernels<T> choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    return kernels_of<T, Avx512, 64, 8>();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kernels_of<T, Avx2, 32, 4>();
#endif
  return kernels_of<T, AnyUnit, 16, 4>();
}

}  // namespace

template <class T>
const TileKernels<T>& tile_kernels() {
  static const TileKernels<T> chosen = choose<T>();
  return chosen;
}

template const TileKernels<float>& tile_kernels();
template const TileKernels<double>& tile_kernels();

}  // namespace espalier::lanes
