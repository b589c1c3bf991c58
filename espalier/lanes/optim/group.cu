// Blocks walk the lists with the grid's stride. Squares and SGD: one block per unit; verdicts: one thread per
// live entry, which adds up its units in their order.
#include <algorithm>

#include "espalier/lanes/optim/group_kernel.h"
#include "espalier/lanes/optim/rounded.cuh"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = kUnitValues / kThreads;

template <class W>
__device__ inline W unscale_of(const UpdateLanes& lanes, int lane) {
  return lanes.scales == nullptr ? W(1) : W(1) / static_cast<W>(lanes.scales[lane]);
}

template <class W>
__global__ void __launch_bounds__(kThreads) squares_kernel(UpdateLists lists, UpdateLanes lanes, W* partial) {
  __shared__ W shared[kThreads];
  const int num_units = lists.counts[1];
  for (int u = blockIdx.x; u < num_units; u += gridDim.x) {
    const UpdateUnit unit = lists.units[u];
    const LiveEntry live = lists.live[unit.live];
    const GroupParameter& parameter = lists.parameters[unit.parameter];
    const W* const gradient = static_cast<const W*>(parameter.gradient) + live.entry * parameter.lane_stride;
    const W unscale = unscale_of<W>(lanes, live.lane);
    const int first = unit.part * kUnitValues + threadIdx.x;
    W sum = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      if (first + i * kThreads < parameter.values) {
        const W value = times(gradient[first + i * kThreads], unscale);
        sum += value * value;
      }
    shared[threadIdx.x] = sum;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) partial[u] = shared[0];
    __syncthreads();  // shared is the next unit's
  }
}

template <class W>
__device__ inline W norm_of(const LiveEntry& live, const W* partial) {
  W sum = 0;
  for (int i = 0; i < live.num_units; ++i) sum += partial[live.first_unit + i];
  return sqrt(sum);
}

template <class W>
__device__ inline bool is_sound(const UpdateLanes& lanes, int lane) {
  return isfinite(static_cast<const W*>(lanes.losses)[lane]);
}

// The sums of one lane, by the thread of its host.
template <class W>
__device__ inline void add_host(const UpdateLanes& lanes, int lane, W norm, bool moves) {
  lanes.norms[lane] += static_cast<double>(norm);
  const double largest = lanes.largest_norms[lane], here = static_cast<double>(norm);
  lanes.largest_norms[lane] = isnan(largest) || isnan(here) ? largest + here : fmax(largest, here);
  const bool is_trained = lanes.is_active[lane];
  bool failed = is_trained && !moves;
  if (lanes.scales != nullptr) {
    // What a lower scale may cure is left out and not flagged.
    const bool overflows = failed && is_sound<W>(lanes, lane);
    failed = failed && (!overflows || lanes.scales[lane] <= lanes.smallest_scale);
    lanes.skipped[lane] += overflows ? 1 : 0;
    lanes.is_whole[lane] = !overflows;
  }
  lanes.non_finite[lane] += failed ? 1 : 0;
}

template <class W>
__global__ void __launch_bounds__(kThreads)
    verdicts_kernel(UpdateLists lists, UpdateLanes lanes, const W* partial, EntryVerdict* verdicts) {
  const int num_live = lists.counts[0];
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < num_live; i += gridDim.x * kThreads) {
    const LiveEntry live = lists.live[i];
    const GroupFacts& group = lists.groups[live.group];
    const W norm = norm_of(live, partial);
    const W host_norm = i < lanes.lanes ? norm : norm_of(lists.live[live.lane], partial);
    bool moves = lanes.is_active[live.lane] && is_sound<W>(lanes, live.lane) && isfinite(host_norm);
    if (i < lanes.lanes)
      add_host(lanes, live.lane, norm, moves);
    else if (group.norms != nullptr)
      group.norms[live.lane] += static_cast<double>(norm);
    moves = moves && isfinite(norm) && !(group.frozen != nullptr && group.frozen[live.entry]) &&
            !group.optimizer_frozen[live.entry];

    const bool falls = group.share.falls;
    double* const age = group.ages == nullptr ? nullptr : group.ages + live.entry * group.age_stride;
    const double share = group.share.at(age == nullptr ? 0 : *age, lanes.schedule.steps - *lanes.step);
    if (age != nullptr && moves) *age += 1;
    const W peak = static_cast<const W*>(lanes.peak_rates)[live.lane];
    const W rate = falls ? peak : static_cast<W>(static_cast<double>(peak) * lanes.schedule.at(*lanes.step));
    W factor = 1;
    const double most = lanes.clip_norms == nullptr ? 0 : lanes.clip_norms[live.lane];
    if (most > 0) {
      factor = static_cast<W>(most) / plus(norm, static_cast<W>(1e-6));
      if (factor > W(1)) factor = 1;
    }
    verdicts[i] = {.rate = static_cast<double>(times(rate, static_cast<W>(share))),
                   .factor = static_cast<double>(factor),
                   .unscale = static_cast<double>(unscale_of<W>(lanes, live.lane)),
                   .moves = moves};
  }
}

template <class W>
__device__ inline void write_copy(const GroupParameter& parameter, int64_t at, W value) {
  if (parameter.copy == nullptr) return;
  if (parameter.copy_type == KernelType::kBf16)
    static_cast<__nv_bfloat16*>(parameter.copy)[at] = __float2bfloat16_rn(static_cast<float>(value));
  else
    static_cast<__half*>(parameter.copy)[at] = __float2half_rn(static_cast<float>(value));
}

template <class W>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(UpdateLists lists, double* step, const EntryVerdict* verdicts) {
  const int num_units = lists.counts[1];
  if (blockIdx.x == 0 && threadIdx.x == 0) *step += 1;  // which nobody else reads here
  for (int u = blockIdx.x; u < num_units; u += gridDim.x) {
    const UpdateUnit unit = lists.units[u];
    const EntryVerdict verdict = verdicts[unit.live];
    if (!verdict.moves) continue;
    const LiveEntry live = lists.live[unit.live];
    const GroupParameter& parameter = lists.parameters[unit.parameter];
    const GroupFacts& group = lists.groups[live.group];
    const W rate = static_cast<W>(verdict.rate), factor = static_cast<W>(verdict.factor),
            unscale = static_cast<W>(verdict.unscale),
            momentum = static_cast<W>(group.momentum_factors[live.lane]),
            decay = static_cast<W>(group.weight_decays[live.lane]);
    const int first = unit.part * kUnitValues + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int place = first + i * kThreads;
      if (place >= parameter.values) break;
      const int64_t at = live.entry * parameter.lane_stride + place;
      W* const value = static_cast<W*>(parameter.value) + at;
      W direction = times(times(static_cast<const W*>(parameter.gradient)[at], unscale), factor);
      const W before = *value;
      if (decay != 0) direction = plus(direction, times(before, decay));
      if (parameter.momentum != nullptr) {
        W* const kept = static_cast<W*>(parameter.momentum) + at;
        const W moved = momentum != 0 ? plus(times(*kept, momentum), direction) : direction;
        *kept = moved;
        direction = group.nesterov && momentum != 0 ? plus(direction, times(moved, momentum)) : moved;
      }
      const W after = plus(before, -times(direction, rate));
      *value = after;
      write_copy(parameter, live.entry * parameter.copy_stride + place, after);
    }
  }
}

}  // namespace

cudaError_t launch_unit_squares(const UpdateLists& lists, const UpdateLanes& lanes, bool is_double,
                                void* partial, int blocks, cudaStream_t stream) {
  is_double
      ? squares_kernel<double><<<blocks, kThreads, 0, stream>>>(lists, lanes, static_cast<double*>(partial))
      : squares_kernel<float><<<blocks, kThreads, 0, stream>>>(lists, lanes, static_cast<float*>(partial));
  return cudaGetLastError();
}

cudaError_t launch_verdicts(const UpdateLists& lists, const UpdateLanes& lanes, bool is_double,
                            const void* partial, EntryVerdict* verdicts, int blocks, cudaStream_t stream) {
  is_double ? verdicts_kernel<double>
      <<<blocks, kThreads, 0, stream>>>(lists, lanes, static_cast<const double*>(partial), verdicts)
            : verdicts_kernel<float>
      <<<blocks, kThreads, 0, stream>>>(lists, lanes, static_cast<const float*>(partial), verdicts);
  return cudaGetLastError();
}

cudaError_t launch_group_sgd(const UpdateLists& lists, const UpdateLanes& lanes, const EntryVerdict* verdicts,
                             bool is_double, int blocks, cudaStream_t stream) {
  is_double ? sgd_kernel<double><<<blocks, kThreads, 0, stream>>>(lists, lanes.step, verdicts)
            : sgd_kernel<float><<<blocks, kThreads, 0, stream>>>(lists, lanes.step, verdicts);
  return cudaGetLastError();
}

}  // namespace espalier::lanes
