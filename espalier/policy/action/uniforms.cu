// One thread per lane and choice. Deterministic: every number is drawn by its place.
#include "espalier/policy/action/uniforms_kernel.h"

namespace espalier::policy {
namespace {

constexpr int kThreads = 256;

__global__ void uniforms_kernel(UniformsArgs args) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= args.lanes * args.choices) return;
  const int64_t lane = index / args.choices, choice = index - lane * args.choices;
  args.uniforms[index] = choice_uniform(args.seed, *args.round, *args.step, lane, choice);
}

}  // namespace

cudaError_t launch_uniforms(const UniformsArgs& args, cudaStream_t stream) {
  const int64_t threads = args.lanes * args.choices;
  uniforms_kernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace espalier::policy
