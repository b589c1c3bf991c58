// What a training step leaves out at random: streams of samples (modality dropout), and pooled features.
//
// Kept true: drawn on the device from counters there, so a captured step draws new numbers when it is
// replayed; the CPU draws the same; never all streams of a sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "espalier/linet/rules.h"

namespace espalier::linet {

// Whose streams may be left out.
struct BlankingShape {
  LinetRules rules = LinetRules::kOriginal;
  int64_t streams = 2;  // at least 2 by the original's rules, which would leave a sample of one with none
  int64_t batch = 1;
};

// step [1] f64 and probability [1] f64, on the device. Returns keep [S,B] bool there, false where a sample's
// stream is left out. kOriginal: a sample loses one stream with that probability, each as often as another,
// and never two. kEspalier: every stream of every sample is left out with that probability; where all of a
// sample's would be, one stays.
at::Tensor blanking_mask(const BlankingShape& shape, uint64_t seed, const at::Tensor& step,
                         const at::Tensor& probability);

// [1,B,F] f32 factors: 0 with that probability (below 1), else 1 / (1 - probability).
at::Tensor dropout_factors(int64_t batch, int64_t features, double probability, uint64_t seed,
                           const at::Tensor& step);

// The probability over a run. It is computed on the device from the step there, so a captured step follows
// it.
//
// kOriginal: by epochs, counted from 0: nothing before the start epoch, largest * (epoch - start + 1) / ramp
// in those after it, and the largest once that is reached, or at once without a ramp.
// kEspalier: by steps, along a line from 0 in the first step to the largest after `ramp_epochs`.
struct BlankingRamp {
  double largest = 0;
  int64_t start_epoch = 0;  // the original's alone
  double ramp_epochs = 0;
  int64_t steps_per_epoch = 1;

  at::Tensor at(const at::Tensor& step, LinetRules rules) const;  // [1] f64 on step's device
};

}  // namespace espalier::linet
