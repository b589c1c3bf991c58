// Convolutions whose channels and filters are multiples of 8, as matrix products that are never laid out.
//
// Forward, one lane: out[m, n] = sum over k of a[m, k] w[n, k], with m an output pixel (sample, row, column),
// n a filter and k = (tap, channel). Data gradient: the same with m an input pixel, n a channel,
// k = (tap, filter), the output's gradient read at the places that the taps came from, and w read as
// w[filter, tap, channel]. Weight gradient: grad_weight[n, j] = sum over pixels m of grad[m, n] a[m, j].
//
// Thread mapping: a block does a tile of kRows pixels (or a tile of filters x columns over a part of the
// pixels) of one lane (blockIdx.z); a warp 32 of the rows. Tiles come in by 16-byte asynchronous copies,
// several stages ahead, zeros where a tap lies outside; eight channels of one tap are one copy.
// Deterministic: a sum's order depends on the lane's shape alone.
#pragma once

#include "espalier/core/random/divisor.h"
#include "espalier/lanes/conv/kernel.h"
#include "espalier/lanes/mma.cuh"

namespace espalier::lanes::vector_conv {

constexpr int kWarp = 32;
constexpr int kChunk = 8;  // values of 16 bytes

// How a block finds the values that a tap reads.
struct Window {
  int32_t height, width;    // the tensor that is read
  Divisor a_row, a_sample;  // pixels that are gone over
  int32_t kernel, stride, padding;
  bool is_data_grad;  // the data gradient: taps lead from the input to the outputs that read it
};

// The place that tap (r, s) reads for a pixel at (y, x); negative: outside.
__device__ inline int place_of(const Window& window, int y, int x, int r, int s) {
  int row, column;
  if (window.is_data_grad) {
    row = y + window.padding - r;
    column = x + window.padding - s;
    if (window.stride > 1) {
      if (row % window.stride != 0 || column % window.stride != 0) return -1;
      row /= window.stride;
      column /= window.stride;
    }
  } else {
    row = y * window.stride - window.padding + r;
    column = x * window.stride - window.padding + s;
  }
  if (row < 0 || row >= window.height || column < 0 || column >= window.width) return -1;
  return row * window.width + column;
}

// One place in k = (tap, channel), moved on chunk by chunk without a division.
struct TapCursor {
  int r, s, channel;

  __device__ TapCursor(int k, int channels, int kernel) {
    const int tap = k / channels;
    channel = k - tap * channels;
    r = tap / kernel;
    s = tap - r * kernel;
  }
  __device__ void advance(int by, int channels, int kernel) {
    channel += by;
    while (channel >= channels) {
      channel -= channels;
      if (++s == kernel) {
        s = 0;
        ++r;
      }
    }
  }
};

// The stages of a sum: `multiply(step)` finds each as `fetch(step)` began to copy it, kStages - 1 steps
// before. All copies have come when it returns.
template <int kStages, class Fetch, class Multiply>
__device__ __forceinline__ void each_stage(int steps, Fetch&& fetch, Multiply&& multiply) {
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) fetch(step);
    commit_copies();
  }
  for (int step = 0; step < steps; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    if (step + kStages - 1 < steps) fetch(step + kStages - 1);
    commit_copies();
    multiply(step);
  }
  wait_copies<0>();
}

}  // namespace espalier::lanes::vector_conv
