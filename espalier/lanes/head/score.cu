// One block per lane, one thread per sample: a window of samples at a time, whose cross entropies one thread
// adds up in their order. Deterministic, and the same however a split is cut into batches.
#include "espalier/core/ignored_label.h"
#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 512;

template <class T>
__device__ inline double cross_entropy(const T* logits, int classes, int64_t label, bool& is_hit) {
  using W = wide_t<T>;
  if (label < 0 || label >= classes) {
    is_hit = false;
    return NAN;
  }
  W most = widen<T>(logits[0]);
  int at = 0;
  for (int k = 1; k < classes; ++k) {
    const W value = widen<T>(logits[k]);
    if (most == most && (value > most || value != value)) {
      most = value;
      at = k;
    }
  }
  is_hit = at == label;
  double sum = 0;
  for (int k = 0; k < classes; ++k) sum += exp(static_cast<double>(widen<T>(logits[k])) - most);
  return log(sum) - (static_cast<double>(widen<T>(logits[label])) - most);
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_scores_kernel(ScoreArgs args) {
  __shared__ double losses[kThreads];
  __shared__ bool counts[kThreads];
  const int lane = blockIdx.x;
  double loss = 0;
  int hits = 0, samples = 0;
  if (threadIdx.x == 0) loss = args.sums[lane];
  for (int first = 0; first < args.batch; first += kThreads) {
    const int sample = first + static_cast<int>(threadIdx.x);
    const int64_t label =
        sample < args.batch ? args.labels[lane * args.labels_stride + sample] : kIgnoredLabel;
    const bool is_there = label != kIgnoredLabel;
    bool is_hit = false;
    counts[threadIdx.x] = is_there;
    if (is_there)
      losses[threadIdx.x] =
          cross_entropy(static_cast<const T*>(args.logits.data) + lane * args.logits.lane_stride +
                            static_cast<int64_t>(sample) * args.classes,
                        args.classes, label, is_hit);
    hits += __syncthreads_count(is_hit);
    samples += __syncthreads_count(is_there);
    if (threadIdx.x == 0) {
      const int here = min(kThreads, args.batch - first);
      for (int i = 0; i < here; ++i)
        if (counts[i]) loss += losses[i];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  args.sums[lane] = loss;
  args.sums[args.lanes + lane] += hits;
  args.sums[2 * args.lanes + lane] += samples;
}

}  // namespace

cudaError_t launch_add_scores(const ScoreArgs& args, cudaStream_t stream) {
  switch (args.type) {
    case KernelType::kF32:
      add_scores_kernel<float><<<args.lanes, kThreads, 0, stream>>>(args);
      break;
    case KernelType::kF64:
      add_scores_kernel<double><<<args.lanes, kThreads, 0, stream>>>(args);
      break;
    case KernelType::kBf16:
      add_scores_kernel<__nv_bfloat16><<<args.lanes, kThreads, 0, stream>>>(args);
      break;
    case KernelType::kF16:
      add_scores_kernel<__half><<<args.lanes, kThreads, 0, stream>>>(args);
      break;
  }
  return cudaGetLastError();
}

}  // namespace espalier::lanes
