// One thread per sample and stream, or per feature. Deterministic: every value is drawn by its place.
#include "espalier/linet/blanking_kernel.h"
#include "espalier/linet/blanking_random.h"

namespace espalier::linet {
namespace {

constexpr int kThreads = 256;

__global__ void blanking_kernel(BlankingArgs args) {
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= args.streams * args.batch) return;
  const int stream = index / args.batch, sample = index - stream * args.batch;
  args.keep[index] = keeps_stream(args.rules, args.seed, static_cast<uint32_t>(*args.step), sample, stream,
                                  args.streams, *args.probability);
}

__global__ void dropout_kernel(DropoutArgs args) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= args.count) return;
  args.factors[index] = dropout_factor(args.seed, static_cast<uint32_t>(*args.step),
                                       static_cast<uint32_t>(index), args.probability);
}

unsigned blocks(int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t launch_blanking(const BlankingArgs& args, cudaStream_t stream) {
  blanking_kernel<<<blocks(static_cast<int64_t>(args.streams) * args.batch), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t launch_dropout(const DropoutArgs& args, cudaStream_t stream) {
  dropout_kernel<<<blocks(args.count), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace espalier::linet
