// How many lanes a stack on a CUDA device may have: kernels have lanes on an axis of their grid that goes no
// further. empty_lanes() (stack.h), by which every network and every result of an op comes, refuses more.
#pragma once

#include <cstdint>

namespace espalier::lanes {

inline constexpr int64_t kMostLanesOnCuda = 65535;

}  // namespace espalier::lanes
