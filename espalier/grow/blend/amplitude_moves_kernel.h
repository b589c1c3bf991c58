// Kernel of amplitude_moves.h, without torch.
#pragma once

#include <cstdint>

#include "espalier/grow/blend/ramp.h"
#if ESPALIER_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace espalier::grow {

struct AmplitudeArgs {
  const SlotState* states = nullptr;  // [L,S]
  const double* batch = nullptr;      // [1]
  double batches_per_epoch = 1;
  int64_t lanes = 0;
  int64_t slots = 0;
  float* amplitudes = nullptr;  // [S,L]

  // The slot and lane at this place of the output.
  ESPALIER_HOST_DEVICE float amplitude_at(int64_t place) const {
    const int64_t slot = place / lanes, lane = place - slot * lanes;
    // Whole numbers below 2^53: the remainder is exact.
    const double done = std::fmod(*batch, batches_per_epoch) + 1;
    return amplitude_within_step(states[lane * slots + slot], done / batches_per_epoch);
  }
};

#if ESPALIER_WITH_CUDA
cudaError_t launch_amplitudes(const AmplitudeArgs& args, cudaStream_t stream);
#endif

}  // namespace espalier::grow
