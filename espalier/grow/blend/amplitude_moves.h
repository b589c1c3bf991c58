// Amplitudes within an epoch: every batch has its own, computed on the device from a counter there, so that a
// captured step moves on when it is replayed.
//
// Kept true: a lane's amplitude depends on its own state and on the batch alone; the last batch of an epoch
// has the amplitude that the state says, exactly.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace espalier::grow {

// Writes amplitudes [S,L] f32. states: [L * S * sizeof(SlotState)] u8 on the same device, [L,S] as a
// lifecycle has them. batch: [1] f64 there, the batch that is being trained, counted from any epoch's first;
// batches_per_epoch: of each, at least 1. Batch b of an epoch has the amplitude that the curve has after
// (b + 1) / batches_per_epoch of the epoch.
void move_amplitudes_(const at::Tensor& amplitudes, const at::Tensor& states, const at::Tensor& batch,
                      int64_t batches_per_epoch);

}  // namespace espalier::grow
