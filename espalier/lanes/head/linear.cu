// The linear map of all lanes. Small by nature (a classifier of ten classes, a gate of a few channels), so
// plain sums: one thread per output of a sample forward, where there are few features, else one warp per
// sample, as for the gradient of x; one block per output for the weights'. The gradients are one launch,
// whose first blocks have samples and the others outputs. Deterministic: sums are shared out over a warp or
// block by the shape of a lane alone.
#include "espalier/lanes/head/linear.cuh"

namespace espalier::lanes {
namespace {

using namespace linear_map;

constexpr int kFewFeatures = 64;

template <class T>
__global__ void __launch_bounds__(kThreads) forward_few_kernel(LinearArgs args) {
  using W = wide_t<T>;
  const int lane = blockIdx.y, index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= args.batch * args.out_features || (args.entries != nullptr && args.entries[lane] < 0)) return;
  const int sample = index / args.out_features, o = index - sample * args.out_features;
  const T* const x = static_cast<const T*>(args.x.data) + lane * args.x.lane_stride +
                     static_cast<int64_t>(sample) * args.in_features;
  const W* const weight = static_cast<const W*>(args.weight.data) + lane * args.weight.lane_stride +
                          static_cast<int64_t>(o) * args.in_features;
  W sum = args.bias.data == nullptr
              ? W(0)
              : (static_cast<const W*>(args.bias.data) + lane * args.bias.lane_stride)[o];
#pragma unroll 8
  for (int i = 0; i < args.in_features; ++i) sum += widen<T>(x[i]) * weight[i];
  (static_cast<W*>(args.out.data) + lane * args.out.lane_stride)[index] = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(LinearArgs args) {
  using W = wide_t<T>;
  const int lane = blockIdx.y, sample = blockIdx.x * kWarps + threadIdx.x / kWarp,
            in_warp = threadIdx.x % kWarp;
  if (sample >= args.batch || (args.entries != nullptr && args.entries[lane] < 0)) return;
  const T* const x = static_cast<const T*>(args.x.data) + lane * args.x.lane_stride +
                     static_cast<int64_t>(sample) * args.in_features;
  const W* const weight = static_cast<const W*>(args.weight.data) + lane * args.weight.lane_stride;
  W* const out = static_cast<W*>(args.out.data) + lane * args.out.lane_stride +
                 static_cast<int64_t>(sample) * args.out_features;
  for (int o = 0; o < args.out_features; ++o) {
    W sum = 0;
    for (int i = in_warp; i < args.in_features; i += kWarp)
      sum += widen<T>(x[i]) * weight[static_cast<int64_t>(o) * args.in_features + i];
    sum = warp_sum(sum);
    if (in_warp == 0)
      out[o] = args.bias.data == nullptr
                   ? sum
                   : sum + (static_cast<const W*>(args.bias.data) + lane * args.bias.lane_stride)[o];
  }
}

// The gradient of x, for kWarps samples from `first` on.
template <class T>
__device__ inline void grad_x_rows(const LinearArgs& args, int lane, int first) {
  using W = wide_t<T>;
  const int sample = first + threadIdx.x / kWarp, in_warp = threadIdx.x % kWarp;
  if (sample >= args.batch) return;
  const W* const grad = static_cast<const W*>(args.out.data) + lane * args.out.lane_stride +
                        static_cast<int64_t>(sample) * args.out_features;
  const W* const weight = static_cast<const W*>(args.weight.data) + lane * args.weight.lane_stride;
  T* const grad_x = static_cast<T*>(args.grad_x.data) + lane * args.grad_x.lane_stride +
                    static_cast<int64_t>(sample) * args.in_features;
  for (int i = in_warp; i < args.in_features; i += kWarp) {
    W sum = 0;
    for (int o = 0; o < args.out_features; ++o)
      sum += grad[o] * weight[static_cast<int64_t>(o) * args.in_features + i];
    grad_x[i] = narrow<T>(sum);
  }
}

// blockIdx.x: kWarps samples each up to sample_blocks, then an output each; blockIdx.y: lane.
template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(LinearArgs args, int sample_blocks) {
  __shared__ wide_t<T> shared[kThreads];
  const int lane = blockIdx.y, block = blockIdx.x;
  if (args.entries != nullptr && args.entries[lane] < 0) return;
  if (block < sample_blocks)
    grad_x_rows<T>(args, lane, block * kWarps);
  else
    grad_weight_row<T>(args, lane, block - sample_blocks, shared);
}

template <class T>
cudaError_t launch(const LinearArgs& args, bool backward, cudaStream_t stream) {
  const dim3 samples((args.batch + kWarps - 1) / kWarps, args.lanes);
  if (!backward) {
    const int64_t outputs = static_cast<int64_t>(args.batch) * args.out_features;
    constexpr int64_t kMostOutputs = (int64_t{1} << 31) - kThreads;  // are counted in 32 bits
    // A single sum of f32 products would round more than torch's.
    if (sizeof(T) == 2 && args.in_features <= kFewFeatures && outputs <= kMostOutputs) {
      const dim3 blocks(static_cast<unsigned>((outputs + kThreads - 1) / kThreads), args.lanes);
      forward_few_kernel<T><<<blocks, kThreads, 0, stream>>>(args);
    } else {
      forward_kernel<T><<<samples, kThreads, 0, stream>>>(args);
    }
    return cudaGetLastError();
  }
  const unsigned sample_blocks = args.grad_x.data != nullptr ? samples.x : 0;
  const bool has_outputs = args.grad_weight.data != nullptr || args.grad_bias.data != nullptr;
  const dim3 blocks(sample_blocks + (has_outputs ? args.out_features : 0), args.lanes);
  if (blocks.x > 0)
    backward_kernel<T><<<blocks, kThreads, 0, stream>>>(args, static_cast<int>(sample_blocks));
  return cudaGetLastError();
}

cudaError_t launch(const LinearArgs& args, bool backward, cudaStream_t stream) {
  return for_type(args.type, [&](auto value) { return launch<decltype(value)>(args, backward, stream); });
}

}  // namespace

cudaError_t launch_linear_forward(const LinearArgs& args, cudaStream_t stream) {
  return launch(args, false, stream);
}

cudaError_t launch_linear_backward(const LinearArgs& args, cudaStream_t stream) {
  return launch(args, true, stream);
}

}  // namespace espalier::lanes
