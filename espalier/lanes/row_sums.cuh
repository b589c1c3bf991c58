// Sums over a block's threads, column by column.
#pragma once

namespace espalier::lanes {

// A block's threads lie in rows of `across`, a power of two; the sums of each column end up in the first row.
// Warps add up by themselves, then one after the other: in a fixed order. By all of the block's kThreads
// threads, as often as one likes. shared: written over.
template <int kThreads, class W, int kSums>
__device__ inline void add_rows(int across, W (&sums)[kSums], W (*shared)[kThreads]) {
  constexpr int kWarp = 32;
  for (int offset = kWarp / 2; offset >= across; offset /= 2)
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] += __shfl_down_sync(~0u, sums[i], offset);
  const int in_warp = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const bool is_narrow = across < kWarp;  // a warp has several rows
  __syncthreads();
  if (!is_narrow || in_warp < across)
#pragma unroll
    for (int i = 0; i < kSums; ++i) shared[i][is_narrow ? warp * across + in_warp : threadIdx.x] = sums[i];
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= across) return;
  const int rows = is_narrow ? kThreads / kWarp : kThreads / across;
  for (int row = 1; row < rows; ++row)
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] += shared[i][row * across + threadIdx.x];
}

}  // namespace espalier::lanes
