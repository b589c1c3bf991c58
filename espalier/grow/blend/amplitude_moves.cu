// One thread per slot and lane. Deterministic.
#include "espalier/grow/blend/amplitude_moves_kernel.h"

namespace espalier::grow {
namespace {

constexpr int kThreads = 256;

__global__ void amplitudes_kernel(AmplitudeArgs args) {
  const int64_t place = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (place < args.slots * args.lanes) args.amplitudes[place] = args.amplitude_at(place);
}

}  // namespace

cudaError_t launch_amplitudes(const AmplitudeArgs& args, cudaStream_t stream) {
  const int64_t threads = args.slots * args.lanes;
  amplitudes_kernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      args);
  return cudaGetLastError();
}

}  // namespace espalier::grow
