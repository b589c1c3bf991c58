// Cross entropy and hits of all lanes. One block per lane forward, and a group of threads per sample: a
// warp, or four where classes are few. The samples' losses are added up in an order that depends on the batch
// alone. Deterministic.
#include "espalier/core/ignored_label.h"
#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 512;
constexpr int kWarp = 32;
constexpr int kFewClasses = 16, kFewThreads = 4;

// The threads of one sample: kSize neighbours of a warp. Groups of a warp go their own ways.
template <int kSize>
struct Group {
  static constexpr int kCount = kThreads / kSize;  // in a block
  int number = threadIdx.x / kSize, thread = threadIdx.x % kSize;
  unsigned mask = (kSize == kWarp ? ~0u : (1u << kSize) - 1) << (threadIdx.x % kWarp / kSize * kSize);

  template <class W>
  __device__ W other(W value, int step) const {
    return __shfl_xor_sync(mask, value, step);
  }
  template <class W>
  __device__ W sum(W value) const {
#pragma unroll
    for (int step = kSize / 2; step > 0; step /= 2) value += other(value, step);
    return value;
  }
};

__device__ inline bool is_valid(const LossArgs& args, int lane, int sample) {
  return args.labels[lane * args.labels_stride + sample] != kIgnoredLabel &&
         (args.mask == nullptr || args.mask[lane * args.mask_stride + sample]);
}

// A label as it may be used: one out of range would read what is not there; it makes the loss NaN instead.
__device__ inline bool in_range(const LossArgs& args, int64_t label) {
  return label >= 0 && label < args.classes;
}

// max and log(sum(exp)) of a sample's logits, to every thread of its group. A NaN makes both NaN.
template <class T, int kSize>
__device__ inline void log_sum(const LossArgs& args, const T* logits, const Group<kSize>& group,
                               sum_t<T>& most, sum_t<T>& log_of_sum) {
  using S = sum_t<T>;
  most = -INFINITY;
  for (int k = group.thread; k < args.classes; k += kSize) {
    const S value = widen<T>(logits[k]);
    most = value > most || value != value ? value : most;
  }
#pragma unroll
  for (int step = kSize / 2; step > 0; step /= 2) {
    const S other = group.other(most, step);
    most = other > most || other != other ? other : most;
  }
  S sum = 0;
  for (int k = group.thread; k < args.classes; k += kSize) sum += exp(widen<T>(logits[k]) - most);
  log_of_sum = log(group.sum(sum));
}

__device__ inline double smoothing_of(const LossArgs& args, int lane) {
  return args.smoothing == nullptr ? 0 : args.smoothing[lane];
}

// How many samples of a lane count, to all threads.
__device__ inline int count_valid(const LossArgs& args, int lane) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  int own = 0;
  for (int sample = threadIdx.x; sample < args.batch; sample += kThreads) own += is_valid(args, lane, sample);
  if (own > 0) atomicAdd(&count, own);  // integers: exact in any order
  __syncthreads();
  return count;
}

// Whether the first of a sample's largest logits is the label's, to the group's first thread; a NaN is larger
// than all, as in torch's argmax.
template <class T, int kSize>
__device__ inline bool is_hit(const LossArgs& args, const T* logits, int64_t label,
                              const Group<kSize>& group) {
  using W = wide_t<T>;
  W best = 0;
  int at = args.classes;
  const auto better = [](W a, int a_at, W b, int b_at, int none) {
    if (a_at == none) return false;
    if (b_at == none) return true;
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return a_nan;
    return a_nan || a == b ? a_at < b_at : a > b;
  };
  for (int k = group.thread; k < args.classes; k += kSize) {
    const W value = widen<T>(logits[k]);
    if (better(value, k, best, at, args.classes)) {
      best = value;
      at = k;
    }
  }
#pragma unroll
  for (int step = kSize / 2; step > 0; step /= 2) {
    const W other = group.other(best, step);
    const int other_at = group.other(at, step);
    if (better(other, other_at, best, at, args.classes)) {
      best = other;
      at = other_at;
    }
  }
  return group.thread == 0 && at == label;
}

template <class T, int kSize>
__global__ void __launch_bounds__(kThreads) forward_kernel(LossArgs args) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const Group<kSize> group;
  __shared__ S shared[Group<kSize>::kCount];
  __shared__ int correct;
  const int lane = blockIdx.x;
  if (threadIdx.x == 0) correct = 0;
  const int count = count_valid(args, lane);
  const double smoothing = smoothing_of(args, lane);
  S total = 0;
  for (int sample = group.number; sample < args.batch; sample += group.kCount) {
    if (!is_valid(args, lane, sample)) continue;
    const T* const logits = static_cast<const T*>(args.logits.data) + lane * args.logits.lane_stride +
                            static_cast<int64_t>(sample) * args.classes;
    const int64_t label = args.labels[lane * args.labels_stride + sample];
    S most, log_of_sum;
    log_sum<T>(args, logits, group, most, log_of_sum);
    const S right = in_range(args, label) ? widen<T>(logits[label]) : static_cast<W>(NAN);
    S loss = log_of_sum - (right - most);
    if (smoothing > 0) {
      S sum = 0;
      for (int k = group.thread; k < args.classes; k += kSize) sum += widen<T>(logits[k]) - most - log_of_sum;
      loss = loss * static_cast<S>(1 - smoothing) - group.sum(sum) * static_cast<S>(smoothing / args.classes);
    }
    total += loss;
    if (args.sums != nullptr && is_hit<T>(args, logits, label, group)) atomicAdd(&correct, 1);
  }
  if (group.thread == 0) shared[group.number] = total;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  total = 0;
  for (int i = threadIdx.x; i < group.kCount; i += kWarp) total += shared[i];
  total = Group<kWarp>().sum(total);
  if (threadIdx.x != 0) return;
  const W loss = static_cast<W>(total / static_cast<S>(count > 1 ? count : 1));
  static_cast<W*>(args.loss.data)[lane * args.loss.lane_stride] = loss;
  if (args.sums == nullptr) return;
  args.sums[lane] += static_cast<double>(loss * static_cast<W>(count));
  args.sums[args.lanes + lane] += correct;
  args.sums[2 * args.lanes + lane] += count;
}

// (softmax - q) / count, times the lane's own gradient. blockIdx: samples, lane.
template <class T, int kSize>
__global__ void __launch_bounds__(kThreads) backward_kernel(LossArgs args) {
  using W = wide_t<T>;
  using S = sum_t<T>;
  const Group<kSize> group;
  const int lane = blockIdx.y, sample = blockIdx.x * group.kCount + group.number;
  const int count = count_valid(args, lane);
  const double smoothing = smoothing_of(args, lane);
  if (sample >= args.batch) return;
  const int64_t offset = static_cast<int64_t>(sample) * args.classes;
  const T* const logits = static_cast<const T*>(args.logits.data) + lane * args.logits.lane_stride + offset;
  T* const to = static_cast<T*>(args.grad_logits.data) + lane * args.grad_logits.lane_stride + offset;
  const bool valid = is_valid(args, lane, sample);
  const int64_t label = args.labels[lane * args.labels_stride + sample];
  const S factor = static_cast<const W*>(args.loss.data)[lane * args.loss.lane_stride] /
                   static_cast<S>(count > 1 ? count : 1);
  S most, log_of_sum;
  log_sum<T>(args, logits, group, most, log_of_sum);
  for (int k = group.thread; k < args.classes; k += kSize) {
    S slope = exp(widen<T>(logits[k]) - most - log_of_sum) - static_cast<S>(smoothing / args.classes);
    if (k == label) slope -= static_cast<S>(1 - smoothing);
    to[k] = narrow<T>(static_cast<W>(valid ? slope * factor : S(0)));
  }
}

template <class T, int kSize>
__global__ void __launch_bounds__(kThreads) accuracy_kernel(LossArgs args) {
  const Group<kSize> group;
  __shared__ int correct;
  const int lane = blockIdx.x;
  if (threadIdx.x == 0) correct = 0;
  const int count = count_valid(args, lane);
  for (int sample = group.number; sample < args.batch; sample += group.kCount) {
    if (!is_valid(args, lane, sample)) continue;
    const T* const logits = static_cast<const T*>(args.logits.data) + lane * args.logits.lane_stride +
                            static_cast<int64_t>(sample) * args.classes;
    const int64_t label = args.labels[lane * args.labels_stride + sample];
    if (is_hit<T>(args, logits, label, group)) atomicAdd(&correct, 1);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  args.num_correct[lane] = correct;
  args.num_valid[lane] = count;
}

enum class Pass { kForward, kBackward, kAccuracy };

template <class T, int kSize>
cudaError_t launch(Pass pass, const LossArgs& args, cudaStream_t stream) {
  constexpr int kCount = Group<kSize>::kCount;
  if (pass == Pass::kForward)
    forward_kernel<T, kSize><<<args.lanes, kThreads, 0, stream>>>(args);
  else if (pass == Pass::kAccuracy)
    accuracy_kernel<T, kSize><<<args.lanes, kThreads, 0, stream>>>(args);
  else
    backward_kernel<T, kSize>
        <<<dim3((args.batch + kCount - 1) / kCount, args.lanes), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch(Pass pass, const LossArgs& args, cudaStream_t stream) {
  return args.classes <= kFewClasses ? launch<T, kFewThreads>(pass, args, stream)
                                     : launch<T, kWarp>(pass, args, stream);
}

cudaError_t launch(Pass pass, const LossArgs& args, cudaStream_t stream) {
  return for_type(args.type, [&](auto value) { return launch<decltype(value)>(pass, args, stream); });
}

}  // namespace

cudaError_t launch_cross_entropy_forward(const LossArgs& args, cudaStream_t stream) {
  return launch(Pass::kForward, args, stream);
}
cudaError_t launch_cross_entropy_backward(const LossArgs& args, cudaStream_t stream) {
  return launch(Pass::kBackward, args, stream);
}
cudaError_t launch_accuracy(const LossArgs& args, cudaStream_t stream) {
  return launch(Pass::kAccuracy, args, stream);
}

}  // namespace espalier::lanes
