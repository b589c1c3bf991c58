// How a tensor lies in memory, told from its sizes and strides alone, and which device kernels move values
// from one layout to another. Pure functions: nothing here looks at a tensor or at a device.
//
// Kept true: tensors that lie in both orders at once (one channel, one pixel, no values) are told apart from
// those that lie in one, so that they count neither for nor against a layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace espalier::watch {

// The first axis of any of them may have gaps after its entries: lanes start on 256-byte boundaries.
enum class LayoutKind : uint8_t {
  kRows,                 // fewer than four axes, row-major
  kContiguous,           // [B,C,H,W] in memory order B,C,H,W; row-major tensors of more than five axes
  kChannelsLast,         // [B,C,H,W] in memory order B,H,W,C
  kStackedContiguous,    // [L,B,C,H,W] in memory order L,B,C,H,W
  kStackedChannelsLast,  // [L,B,C,H,W] in memory order L,B,H,W,C
  kEither,               // four or five axes in both orders at once
  kOther,
};
inline constexpr int kNumLayoutKinds = 7;

// "channels-last", "stacked channels-last", ...
std::string_view layout_text(LayoutKind kind);

// sizes and strides: one value an axis, strides in values. Fails where their counts differ.
LayoutKind layout_of(std::span<const int64_t> sizes, std::span<const int64_t> strides);

struct Geometry {
  std::span<const int64_t> sizes;
  std::span<const int64_t> strides;
};

// Whether a copy from one to the other walks both in one order, gaps or not: whether no two axes lie one way
// round here and the other way there. Axes of one entry and broadcast axes lie either way; fewer axes are met
// as broadcasting meets them.
bool is_same_order(const Geometry& to, const Geometry& from);

enum class KernelKind : uint8_t {
  kCompute,
  kReformat,  // a library's own change of layout: nchwToNhwc and its like
  kCopy,      // copies on the device: whether the layout changes, only the op that asked can tell
};

struct KernelClass {
  KernelKind kind = KernelKind::kCompute;
  std::string label;  // the telling word of a mangled name: "direct_copy_kernel_cuda"; empty for kCompute
};

// From a device kernel's name as the profiler gives it ("Memcpy DtoD (Device -> Device)" is one).
KernelClass classify_kernel(std::string_view name);

}  // namespace espalier::watch
