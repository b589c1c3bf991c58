// Runs a few steps under Kineto and says which ops ran on which layouts, where a layout was converted, and on
// CUDA which device kernels reformatted behind an op's back.
//
// A conversion is a copy that walks source and destination in different orders (copy_, and so clone, to and
// reshape, which end in one), an aten::contiguous that copied, or a cat: nothing in a steady-state step needs
// one of them. A copy between equal layouts is none. Device kernels count where no recorded copy explains
// them: under an op that is no copy, or in a replayed graph, where only kernels are seen.
//
// Kept true: a conversion counts once, under the outermost op whose only work it was.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "espalier/watch/audit/kernel_work.h"
#include "espalier/watch/audit/layout_kind.h"

namespace espalier::watch {

// All counts are over all steps.
struct OpUse {
  std::string op;  // "aten::convolution"
  int64_t calls = 0;
  std::array<int64_t, kNumLayoutKinds> inputs{};  // tensors that came in, by LayoutKind
};

struct Conversion {
  std::string place;   // the innermost named range (RECORD_USER_SCOPE), "backward of ..." it, or kNoPlace
  std::string op;      // "aten::contiguous"
  std::string inside;  // the op that called it, "aten::convolution_backward"; empty: the step itself
  std::string sizes;   // "[8,64,3,32,32]"
  std::string from;    // layout_text(), and the strides where that is no more than "other"
  std::string to;      // the same; empty where the destination is not recorded
  int64_t times = 0;
};

struct KernelUse {
  std::string kernel;  // "nchwToNhwcKernel"
  std::string op;      // what launched it: an op, kGraphReplay, or kNoOp
  std::string place;
  KernelKind kind = KernelKind::kCopy;
  bool is_behind_an_op = false;  // no recorded copy explains it
  int64_t times = 0;
  double total_us = 0;  // on the device
};

inline constexpr const char* kNoPlace = "(no named range)";
inline constexpr const char* kGraphReplay = "graph replay";
inline constexpr const char* kNoOp = "(no op)";

struct LayoutReport {
  std::string device;
  int steps = 0;
  std::vector<OpUse> ops;               // the most called first
  std::vector<Conversion> conversions;  // the most frequent first
  std::vector<Conversion>
      mixed_inputs;                // ops that read equal shapes in two orders: no copy, but a layout lost
  std::vector<KernelUse> kernels;  // those that reformat or copy; CUDA only
  WorkByKind work{};               // all kernels, by what they do; CUDA only
  int64_t num_kernels = 0;         // all that ran on the device: 0 on CUDA means that none was recorded

  // Conversions, and kernels behind an op's back: 0 in a steady-state step.
  int64_t num_conversions() const;
  std::string text() const;
};

// For steps that were replayed from a graph, where no op tells what a copy was for: as many copies as ops
// explained in the same number of steps that ran eagerly are no conversions.
int64_t replayed_conversions(const LayoutReport& replayed, const LayoutReport& eager);

// Runs `step` `steps` times and reports. The caller has warmed up: what a first step does once (choosing
// algorithms, making buffers) would be counted. Ops are seen on the calling thread and on autograd's. Fails
// where a profiler is running already; an exception of `step` passes through.
LayoutReport audit_layout(c10::Device device, int steps, const std::function<void()>& step);

}  // namespace espalier::watch
