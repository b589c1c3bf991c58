// Thread mapping: sample_rows.cuh. A lane finds its seed by looking through the slot's stacks, at most eight;
// its rule is one for the whole block. A lane that is not blended is copied bit for bit, and where the result
// takes the place of what it is made from, it is left alone.
#include "espalier/grow/blend/kernel.h"
#include "espalier/grow/blend/sample_rows.cuh"

namespace espalier::grow {
namespace {

using lanes::load;
using lanes::store;
using lanes::sum_t;
using lanes::wide_t;

// One value per sample, [E,B].
template <class W>
__device__ inline W& sample_value(const lanes::Stack& stack, int64_t entry) {
  return static_cast<W*>(stack.data)[entry * stack.lane_stride + blockIdx.x];
}

// a, or a g.
template <class W>
__device__ inline W weight_of(const BlendArgs& args, const Held& held) {
  const W a = static_cast<W>(held.blend.amplitude);
  return held.gated ? a * sample_value<W>(args.stacks[held.stack].gates, held.entry) : a;
}

template <class T, int kWidth>
__device__ inline void copy_sample(T* to, const T* from, int values) {
  if (to == from) return;
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth)
    copy_bits<T, kWidth>(to + i, from + i);
}

template <class T, int kWidth>
__device__ inline void zero_sample(T* to, int values) {
  const wide_t<T> zeros[kWidth] = {};
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth) store<T, kWidth>(to + i, zeros);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kMostThreads) select_kernel(BlendArgs args) {
  const int lane = blockIdx.y;
  if (args.active != nullptr && args.active[lane] < 0) return;
  const Held held = held_by(args, lane);
  if (held.entry < 0) return;
  copy_sample<T, kWidth>(sample_of<T>(args.stacks[held.stack].seeds, held.entry, args.values),
                         sample_of<const T>(args.h, lane, args.values), args.values);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kMostThreads) select_backward_kernel(BlendArgs args) {
  const int lane = blockIdx.y, values = args.values;
  const Held held = held_by(args, lane);
  const bool adds =
      held.entry >= 0 && held.rule != BlendRule::kIsolated && args.stacks[held.stack].seeds.data != nullptr;
  const T* const through = args.out.data == nullptr ? nullptr : sample_of<const T>(args.out, lane, values);
  const T* const input =
      adds ? sample_of<const T>(args.stacks[held.stack].seeds, held.entry, values) : nullptr;
  T* const grad_h = sample_of<T>(args.grad_h, lane, values);
  if (through == nullptr && input == nullptr) return zero_sample<T, kWidth>(grad_h, values);
  if (through == nullptr || input == nullptr)
    return copy_sample<T, kWidth>(grad_h, input == nullptr ? through : input, values);
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth) {
    wide_t<T> sum[kWidth], added[kWidth];
    load<T, kWidth>(sum, through + i);
    load<T, kWidth>(added, input + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum[j] += added[j];
    store<T, kWidth>(grad_h + i, sum);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kMostThreads) blend_kernel(BlendArgs args) {
  using W = wide_t<T>;
  const int lane = blockIdx.y, values = args.values;
  if (args.active != nullptr && args.active[lane] < 0) return;
  const Held held = held_by(args, lane);
  const T* const h = sample_of<const T>(args.h, lane, values);
  T* const out = sample_of<T>(args.out, lane, values);
  if (!is_arithmetic(held.rule)) return copy_sample<T, kWidth>(out, h, values);
  const T* const seeds = sample_of<const T>(args.stacks[held.stack].seeds, held.entry, values);
  const W weight = weight_of<W>(args, held);
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth) {
    W own[kWidth], s[kWidth];
    load<T, kWidth>(own, h + i);
    load<T, kWidth>(s, seeds + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) own[j] = blended(held.rule, weight, own[j], s[j]);
    store<T, kWidth>(out + i, own);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kMostThreads) blend_backward_kernel(BlendArgs args) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const int lane = blockIdx.y, values = args.values;
  const Held held = held_by(args, lane);
  const T* const grads = sample_of<const T>(args.out, lane, values);
  T* const grad_h = sample_of<T>(args.grad_h, lane, values);
  if (held.entry < 0) return copy_sample<T, kWidth>(grad_h, grads, values);
  const StackLanes& stack = args.stacks[held.stack];
  T* const grad_seeds = sample_of<T>(stack.grad_seeds, held.entry, values);
  if (!is_arithmetic(held.rule)) {
    copy_sample<T, kWidth>(grad_h, grads, values);
    if (held.rule == BlendRule::kIsolated)
      copy_sample<T, kWidth>(grad_seeds, grads, values);
    else
      zero_sample<T, kWidth>(grad_seeds, values);
    if (stack.grad_gates.data != nullptr && threadIdx.x == 0)
      sample_value<W>(stack.grad_gates, held.entry) = W(0);
    return;
  }
  const T* const h = stack.inputs.data == nullptr ? sample_of<const T>(args.h, lane, values)
                                                  : sample_of<const T>(stack.inputs, held.entry, values);
  const T* const seeds = sample_of<const T>(stack.seeds, held.entry, values);
  const W weight = weight_of<W>(args, held);
  S sum = 0;  // G (s - h) over the sample
  for (int i = threadIdx.x * kWidth; i < values; i += blockDim.x * kWidth) {
    W grad[kWidth], own[kWidth], s[kWidth];
    load<T, kWidth>(grad, grads + i);
    load<T, kWidth>(own, h + i);
    load<T, kWidth>(s, seeds + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      sum += static_cast<S>(grad[j]) * (static_cast<S>(s[j]) - static_cast<S>(own[j]));
      const BlendGradient<W> both = blend_gradient(held.rule, weight, own[j], s[j], grad[j]);
      own[j] = both.grad_h;
      s[j] = both.grad_s;
    }
    store<T, kWidth>(grad_h + i, own);
    store<T, kWidth>(grad_seeds + i, s);
  }
  if (stack.grad_gates.data == nullptr) return;
  sum = block_sum(sum);
  if (threadIdx.x == 0)
    sample_value<W>(stack.grad_gates, held.entry) =
        held.gated ? static_cast<W>(sum * static_cast<S>(held.blend.amplitude)) : W(0);
}

}  // namespace

cudaError_t launch_select_forward(const BlendArgs& args, cudaStream_t stream) {
  return for_width(args.type, args.values, [&](auto value, auto width) {
    const dim3 blocks(args.batch, args.lanes);
    select_kernel<decltype(value), width><<<blocks, threads_for(args.values / width), 0, stream>>>(args);
    return cudaGetLastError();
  });
}

cudaError_t launch_select_backward(const BlendArgs& args, cudaStream_t stream) {
  return for_width(args.type, args.values, [&](auto value, auto width) {
    const dim3 blocks(args.batch, args.lanes);
    select_backward_kernel<decltype(value), width>
        <<<blocks, threads_for(args.values / width), 0, stream>>>(args);
    return cudaGetLastError();
  });
}

cudaError_t launch_blend_forward(const BlendArgs& args, cudaStream_t stream) {
  return for_width(args.type, args.values, [&](auto value, auto width) {
    const dim3 blocks(args.batch, args.lanes);
    blend_kernel<decltype(value), width><<<blocks, threads_for(args.values / width), 0, stream>>>(args);
    return cudaGetLastError();
  });
}

cudaError_t launch_blend_backward(const BlendArgs& args, cudaStream_t stream) {
  return for_width(args.type, args.values, [&](auto value, auto width) {
    const dim3 blocks(args.batch, args.lanes);
    blend_backward_kernel<decltype(value), width>
        <<<blocks, threads_for(args.values / width), 0, stream>>>(args);
    return cudaGetLastError();
  });
}

}  // namespace espalier::grow
