// What a training step leaves out at random: streams of samples (modality dropout), and pooled features.
//
// Kept true: drawn on the device from counters there, so a captured step draws anew when it is replayed; the
// CPU draws the same; never all streams of a sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace espalier::linet {

// step [1] f64 and probability [1] f64, on the device. Returns keep [S,B] bool there: every stream of every
// sample is left out with that probability; where all of a sample's would be, one stays.
at::Tensor blanking_mask(int64_t streams, int64_t batch, uint64_t seed, const at::Tensor& step,
                         const at::Tensor& probability);

// [1,B,F] f32 factors: 0 with that probability (below 1), else 1 / (1 - probability).
at::Tensor dropout_factors(int64_t batch, int64_t features, double probability, uint64_t seed,
                           const at::Tensor& step);

// The probability over a run: from 0 to its largest over `ramp_steps`, a line.
struct BlankingRamp {
  double largest = 0;
  int64_t ramp_steps = 0;  // 0: the largest from the first step on

  at::Tensor at(const at::Tensor& step) const;  // [1] f64 on step's device
};

}  // namespace espalier::linet
