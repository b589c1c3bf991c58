// Stacks as kernels and the CPU's own loops see them: plain pointers, neither torch nor CUDA.
#pragma once

#include <cstdint>

namespace espalier::lanes {

// The types that kernels take; what each op takes is said there.
enum class KernelType : int32_t { kF32, kF64, kBf16, kF16 };

// A stack of lanes as a kernel sees it: lane l begins `lane_stride` values after lane l - 1.
struct Stack {
  void* data = nullptr;
  int64_t lane_stride = 0;
};

}  // namespace espalier::lanes
