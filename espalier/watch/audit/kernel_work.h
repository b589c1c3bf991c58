// What kind of work a device kernel does, told from its name, and how much of a step goes into each.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::watch {

enum class WorkKind : uint8_t {
  kConvolution,
  kMatrixProduct,
  kNorm,
  kPooling,
  kElementwise,  // reductions included
  kReformat,     // a library's own change of layout
  kCopy,
  kOther,
};
inline constexpr int kNumWorkKinds = 8;

std::string_view work_text(WorkKind kind);

// From a kernel's name as the profiler gives it, its parameters included.
WorkKind work_of(std::string_view kernel);

// Kernels of a kind, over all steps that were looked at.
struct Work {
  int64_t launches = 0;
  double total_us = 0;
};
using WorkByKind = std::array<Work, kNumWorkKinds>;

}  // namespace espalier::watch
