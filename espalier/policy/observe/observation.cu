// One thread per lane, and one per slot of it: none reads what another writes. Deterministic.
#include "espalier/policy/observe/kernel.h"

namespace espalier::policy {
namespace {

constexpr int kThreads = 128;

// Thread i: lane i / (S + 1); its part 0 is the lane's, part 1 + s that of slot s.
__global__ void observe_kernel(ObserveArgs args) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t lane = index / (args.slots + 1), part = index - lane * (args.slots + 1);
  if (lane >= args.lanes) return;
  if (part == 0)
    observe_lane(args, lane);
  else
    observe_slot(args, lane, part - 1);
}

}  // namespace

cudaError_t launch_observe(const ObserveArgs& args, cudaStream_t stream) {
  const int64_t threads = args.lanes * (args.slots + 1);
  observe_kernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace espalier::policy
