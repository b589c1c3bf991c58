// blockIdx: chunk of a parameter's values, parameter, lane; blocks beyond a small parameter's end leave at
// once. Every value is written by one thread.
#include <algorithm>

#include "espalier/lanes/optim/rounded.cuh"
#include "espalier/lanes/optim/update_kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;
constexpr int kAThread = 4;
constexpr int kChunk = kThreads * kAThread;

__device__ inline void write_copy(const ParameterEntry& entry, KernelType type, int lane, int64_t i,
                                  float value) {
  if (entry.copy == nullptr) return;
  if (type == KernelType::kBf16)
    static_cast<__nv_bfloat16*>(entry.copy)[lane * entry.copy_stride + i] = __float2bfloat16_rn(value);
  else if (type == KernelType::kF16)
    static_cast<__half*>(entry.copy)[lane * entry.copy_stride + i] = __float2half_rn(value);
}

// Calls body(entry, lane, place in the lane) for every value.
template <class Body>
__device__ void for_values(const ParameterTable& table, Body&& body) {
  const ParameterEntry& entry = table.entry[blockIdx.y];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kAThread; ++i)
    if (first + i * kThreads < entry.values) body(entry, static_cast<int>(blockIdx.z), first + i * kThreads);
}

// Blocks of a parameter follow one another, lane by lane: an entry's number of blocks says how many a lane
// has.
__host__ __device__ inline int chunks_of(int64_t values) {
  return static_cast<int>((values + kChunk - 1) / kChunk);
}

template <class W>
__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ GradientCopies copies) {
  const int block = blockIdx.x;
  int at = 0;  // the last entry that begins at this block or before it
  for (int beyond = copies.num_entries; beyond - at > 1;) {
    const int middle = (at + beyond) / 2;
    if (copies.entry[middle].first_block <= block)
      at = middle;
    else
      beyond = middle;
  }
  const GradientCopy& entry = copies.entry[at];
  const int chunks = chunks_of(entry.values), lane = (block - entry.first_block) / chunks;
  const int64_t first =
      static_cast<int64_t>(block - entry.first_block - lane * chunks) * kChunk + threadIdx.x;
  W* const to = static_cast<W*>(entry.to) + lane * entry.to_stride;
  const W* const from = static_cast<const W*>(entry.from) + lane * entry.from_stride;
#pragma unroll
  for (int i = 0; i < kAThread; ++i)
    if (first + i * kThreads < entry.values) to[first + i * kThreads] = from[first + i * kThreads];
}

template <class W>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const __grid_constant__ ParameterTable table, const W* factors) {
  for_values(table, [&](const ParameterEntry& entry, int lane, int64_t i) {
    W* const gradient = static_cast<W*>(entry.gradient) + lane * entry.lane_stride + i;
    *gradient = times(*gradient, factors[lane]);
  });
}

// The lane's rate, as a share that depends on the steps it made.
template <class W>
__device__ inline W rate_of(const SgdLanes& lanes, const RateShare& share, int lane) {
  const double age = lanes.ages == nullptr ? 0 : lanes.ages[lane * lanes.age_stride];
  const double left = lanes.steps_left == nullptr ? 0 : *lanes.steps_left;
  return times(static_cast<const W*>(lanes.rates)[lane], static_cast<W>(share.at(age, left)));
}

template <class W>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(const __grid_constant__ ParameterTable table, SgdLanes lanes, RateShare share, bool nesterov) {
  if (!lanes.apply[blockIdx.z]) return;
  const W rate = rate_of<W>(lanes, share, static_cast<int>(blockIdx.z)),
          factor = static_cast<W>(lanes.momentum_factors[blockIdx.z]),
          decay = static_cast<W>(lanes.weight_decays[blockIdx.z]);
  for_values(table, [&](const ParameterEntry& entry, int lane, int64_t i) {
    const int64_t at = lane * entry.lane_stride + i;
    W* const value = static_cast<W*>(entry.value) + at;
    W direction = static_cast<const W*>(entry.gradient)[at];
    if (decay != 0) direction = plus(direction, times(*value, decay));
    if (entry.first != nullptr) {
      W* const momentum = static_cast<W*>(entry.first) + at;
      const W moved = factor != 0 ? plus(times(*momentum, factor), direction) : direction;
      *momentum = moved;
      direction = nesterov && factor != 0 ? plus(direction, times(moved, factor)) : moved;
    }
    *value = plus(*value, -times(direction, rate));
    write_copy(entry, table.copy_type, lane, i, static_cast<float>(*value));
  });
}

template <class W>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const __grid_constant__ ParameterTable table, AdamScalars scalars, const bool* apply,
                 const double* step_sizes, const double* root_corrections, const double* kept) {
  if (!apply[blockIdx.z]) return;
  for_values(table, [&](const ParameterEntry& entry, int lane, int64_t i) {
    const int64_t at = lane * entry.lane_stride + i;
    W* const value = static_cast<W*>(entry.value) + at;
    W *const mean = static_cast<W*>(entry.first) + at, *const square = static_cast<W*>(entry.second) + at;
    const W gradient = static_cast<const W*>(entry.gradient)[at];
    *mean =
        plus(times(*mean, static_cast<W>(scalars.beta1)), times(gradient, static_cast<W>(1 - scalars.beta1)));
    *square = plus(times(*square, static_cast<W>(scalars.beta2)),
                   times(times(gradient, gradient), static_cast<W>(1 - scalars.beta2)));
    const W root = plus(sqrt(*square) / static_cast<W>(root_corrections[lane]), static_cast<W>(scalars.eps));
    *value = plus(times(*value, static_cast<W>(kept[lane])),
                  -(times(static_cast<W>(step_sizes[lane]), *mean) / root));
    write_copy(entry, table.copy_type, lane, i, static_cast<float>(*value));
  });
}

// One block per parameter and lane.
template <class W>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const __grid_constant__ ParameterTable table, W* partial) {
  __shared__ W shared[kThreads];
  const ParameterEntry& entry = table.entry[blockIdx.x];
  const int lane = blockIdx.y;
  const W* const gradient = static_cast<const W*>(entry.gradient) + lane * entry.lane_stride;
  W sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < entry.values; i += kThreads) sum += gradient[i] * gradient[i];
  shared[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  if (threadIdx.x == 0) partial[static_cast<int64_t>(blockIdx.x) * table.lanes + lane] = shared[0];
}

template <class W>
__global__ void __launch_bounds__(kThreads)
    norms_kernel(const W* partial, int num_parts, int lanes, W* norms) {
  const int lane = blockIdx.x * kThreads + threadIdx.x;
  if (lane >= lanes) return;
  W sum = 0;
  for (int part = 0; part < num_parts; ++part) sum += partial[static_cast<int64_t>(part) * lanes + lane];
  norms[lane] = sqrt(sum);
}

dim3 grid_of(const ParameterTable& table) {
  int64_t most = 1;
  for (int i = 0; i < table.num_entries; ++i) most = std::max(most, table.entry[i].values);
  return dim3(static_cast<unsigned>((most + kChunk - 1) / kChunk), table.num_entries, table.lanes);
}

}  // namespace

void GradientCopies::add(GradientCopy copy, int64_t lanes) {
  copy.first_block = num_blocks;
  num_blocks += static_cast<int32_t>(lanes * chunks_of(copy.values));
  entry[num_entries++] = copy;
}

cudaError_t launch_copy_gradients(const GradientCopies& copies, cudaStream_t stream) {
  copies.is_double ? copy_kernel<double><<<copies.num_blocks, kThreads, 0, stream>>>(copies)
                   : copy_kernel<float><<<copies.num_blocks, kThreads, 0, stream>>>(copies);
  return cudaGetLastError();
}

cudaError_t launch_scale_gradients(const ParameterTable& table, const void* factors, cudaStream_t stream) {
  table.is_double ? scale_kernel<double>
      <<<grid_of(table), kThreads, 0, stream>>>(table, static_cast<const double*>(factors))
                  : scale_kernel<float>
      <<<grid_of(table), kThreads, 0, stream>>>(table, static_cast<const float*>(factors));
  return cudaGetLastError();
}

cudaError_t launch_gradient_squares(const ParameterTable& table, void* partial, cudaStream_t stream) {
  const dim3 grid(table.num_entries, table.lanes);
  table.is_double
      ? squares_kernel<double><<<grid, kThreads, 0, stream>>>(table, static_cast<double*>(partial))
      : squares_kernel<float><<<grid, kThreads, 0, stream>>>(table, static_cast<float*>(partial));
  return cudaGetLastError();
}

cudaError_t launch_gradient_norms(const void* partial, int num_parts, int lanes, bool is_double, void* norms,
                                  cudaStream_t stream) {
  const int blocks = (lanes + kThreads - 1) / kThreads;
  is_double ? norms_kernel<double><<<blocks, kThreads, 0, stream>>>(
                  static_cast<const double*>(partial), num_parts, lanes, static_cast<double*>(norms))
            : norms_kernel<float><<<blocks, kThreads, 0, stream>>>(
                  static_cast<const float*>(partial), num_parts, lanes, static_cast<float*>(norms));
  return cudaGetLastError();
}

cudaError_t launch_sgd(const ParameterTable& table, const SgdLanes& lanes, const RateShare& share,
                       bool nesterov, cudaStream_t stream) {
  table.is_double ? sgd_kernel<double><<<grid_of(table), kThreads, 0, stream>>>(table, lanes, share, nesterov)
                  : sgd_kernel<float><<<grid_of(table), kThreads, 0, stream>>>(table, lanes, share, nesterov);
  return cudaGetLastError();
}

cudaError_t launch_adamw(const ParameterTable& table, const AdamScalars& scalars, const bool* apply,
                         const double* step_sizes, const double* root_corrections, const double* kept,
                         cudaStream_t stream) {
  table.is_double ? adamw_kernel<double>
      <<<grid_of(table), kThreads, 0, stream>>>(table, scalars, apply, step_sizes, root_corrections, kept)
                  : adamw_kernel<float>
      <<<grid_of(table), kThreads, 0, stream>>>(table, scalars, apply, step_sizes, root_corrections, kept);
  return cudaGetLastError();
}

}  // namespace espalier::lanes
