// The inner loops of the CPU's weight gradient (weight.h), compiled for several vector units and
// chosen by what this machine has.
//
// A tile of the gradient is held in registers while it walks over pixels. For every pixel it reads filters of
// the output gradient and the values of x that met them, both side by side in memory as channels-last leaves
// them, so that nothing is packed. The one that fills vectors better is `b`, the other `a`.
#pragma once

#include <cstdint>

namespace espalier::lanes {

// From one sample, output row, output pixel of a tensor to the next, in values.
struct TileSteps {
  int64_t sample = 0, row = 0, pixel = 0;
};

struct TileWalk {
  int64_t first_row = 0;      // counted over the output rows of all samples
  int64_t last_row = 0;       // exclusive
  int64_t rows_a_sample = 1;  // H'
  int64_t pixels = 1;         // W'
  int64_t rows_a_sum = 1;     // rows added up in T before they join the sums
  TileSteps a, b;
  int64_t sum_a = 0, sum_b = 0;  // in the sums: from a value of a, and of b, to the next
  // Depthwise tiles alone: from a row of taps, and from a tap, to the next, in b and in the sums.
  int64_t tap_row = 0, tap = 0, sum_tap_row = 0;
};

// a, b, sums: where the tile begins. A whole tile is read.
// columns: values of b to be added to the sums; of a dense tile its first, of a depthwise one its last.
template <class T>
using TileKernel = void (*)(const TileWalk& walk, const T* a, const T* b, double* sums, int64_t columns);

inline constexpr int kMostVectors = 3;  // with 8 values of a 24 of AVX-512's 32 registers hold sums

template <class T>
struct TileKernels {
  // Every value of a times every one of b: [one value of a, `height`][vectors of b - 1].
  int64_t width = 1;  // values a vector
  int64_t height = 1;
  TileKernel<T> dense[2][kMostVectors];
  // Every value of a, a filter, times its own of b, its channel: [one, `depthwise_width`][one tap, 3 x 3].
  int64_t depthwise_width = 1;
  TileKernel<T> depthwise[2][2];
};

// The fastest that this machine runs. T: float or double.
template <class T>
const TileKernels<T>& tile_kernels();

}  // namespace espalier::lanes
