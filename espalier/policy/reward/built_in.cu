// One thread per lane. Deterministic.
#include "espalier/policy/reward/kernel.h"

namespace espalier::policy {
namespace {

constexpr int kThreads = 128;

__global__ void reward_kernel(RewardArgs args) {
  const int64_t lane = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (lane < args.lanes) reward_lane(args, lane);
}

}  // namespace

cudaError_t launch_reward(const RewardArgs& args, cudaStream_t stream) {
  reward_kernel<<<static_cast<unsigned>((args.lanes + kThreads - 1) / kThreads), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace espalier::policy
