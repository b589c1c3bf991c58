// What a run takes on a GPU that no shape tells: the one place where such numbers stand. Loaded kernels,
// graphs and the rounding of the allocator were read off a run of `MemoryPlanCuda` on one H200 (commit
// 15b936e), which prints what was used beside what was planned; workspaces of convolutions and the rests
// beside workspaces are estimates from the same run, whose totals they bring together.
#pragma once

#include <cstdint>

namespace espalier::train::allowance {

inline constexpr int64_t kMiB = 1 << 20;

// cuBLAS: one per handle and stream, from torch's allocator, kept for good; torch gives it 32 MiB from Hopper
// on. A step has a handle on the caller's thread and one on that of the backward pass, and so has the stream
// that convolutions are timed on.
inline constexpr int64_t kCublasWorkspaceBytes = 32 * kMiB;
inline constexpr int64_t kHandlesOfAStream = 2;

// Workspaces of cuDNN's plans: of all branches that run at once, freed behind each pass.
inline constexpr int64_t kConvolutionWorkspaceBytes = 32 * kMiB;

// Blocks that torch's allocator has cut up and not filled: what stays is cut out of what was there.
inline constexpr int64_t kAllocatorRoundingBytes = 16 * kMiB;
inline constexpr int64_t kRestsBesideWorkspacesBytes = 96 * kMiB;

// Kernels of torch, cuDNN and our own, which CUDA loads when they are first launched; and those of cuBLAS.
inline constexpr int64_t kLoadedKernelsBytes = 248 * kMiB;
inline constexpr int64_t kCublasKernelsBytes = 176 * kMiB;

// A captured graph as CUDA keeps it: its nodes and their arguments, not the memory that they use.
inline constexpr int64_t kGraphBytes = kMiB;

// torch's allocator hands out multiples of this.
inline constexpr int64_t kBlockBytes = 512;

// Up to whole units.
constexpr int64_t rounded(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace espalier::train::allowance
