// The inner loops of the CPU's norms (cpu.h, group_cpu.h), over one row of pixels at a time, compiled for
// several vector units and chosen by what this machine has.
//
// A row is W pixels of C channels, side by side; of group norm, all pixels of a sample. What belongs to a
// channel (means, scales, sums) is repeated over a period of whole pixels, so that loops are long where there
// are few channels: value i of a row meets entry i mod period.
//
// Kept true: sums over rows are the same bits whoever masked or pooled them, since a row is always added
// value by value from its first.
#pragma once

#include <cstdint>

namespace espalier::lanes {

template <class T>
struct NormRows {
  // acc[i mod period] += x[i], and the squares of x[i] - mean.
  void (*add)(const T* x, int64_t n, int64_t period, double* acc);
  void (*add_squares)(const T* x, int64_t n, int64_t period, const double* mean, double* acc);
  // out = x a + b [+ residual] [, not below 0].
  void (*apply)(const T* x, int64_t n, int64_t period, const double* a, const double* b, const T* residual,
                bool relu, T* out);
  // Two rows into one of half as many pixels: the largest of 2x2, a NaN before any number, and which of the
  // four it is; with relu another number where that is 0 or less, and its gradient goes nowhere.
  void (*pool)(const T* top, const T* bottom, int64_t pixels, int64_t channels, bool relu, T* out,
               uint8_t* places);
  // The way back: grad to its place, 0 to the others.
  void (*unpool)(const uint8_t* places, const T* grad, int64_t pixels, int64_t channels, float* to_top,
                 float* to_bottom);
  // to = grad, or 0 where out is 0 or less; out: may be null.
  void (*mask)(const T* grad, const T* out, int64_t n, float* to);
  // sums += grad, dots += grad (x - mean).
  void (*add_gradients)(const float* grad, const T* x, int64_t n, int64_t period, const double* mean,
                        double* sums, double* dots);
  // out = (grad - shift - (x - mean) slope) factor.
  void (*grad_x)(const float* grad, const T* x, int64_t n, int64_t period, const float* mean,
                 const float* shift, const float* slope, const float* factor, T* out);
  void (*cast)(const float* values, int64_t n, T* out);
  // out = x, not below 0.
  void (*rectify)(const T* x, int64_t n, T* out);
  // out = grad factor - shift - (x - mean) slope; with rectified 0 where x is 0 or less.
  void (*grad_x_group)(const float* grad, const T* x, int64_t n, int64_t period, const float* mean,
                       const float* shift, const float* slope, const float* factor, bool rectified, T* out);
};

// For float and c10::BFloat16.
template <class T>
const NormRows<T>& norm_rows();

}  // namespace espalier::lanes
