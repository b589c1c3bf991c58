#include "espalier/lanes/entry.h"

#include <c10/util/Exception.h>

#include "espalier/core/error.h"
#include "espalier/lanes/stack.h"

namespace espalier::lanes {
namespace {

bool has_sizes(const at::Tensor& x, at::IntArrayRef sizes, int64_t lanes) {
  if (x.dim() != 5 || x.size(0) != lanes) return false;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (sizes[static_cast<size_t>(axis)] != -1 && x.size(2 + axis) != sizes[static_cast<size_t>(axis)])
      return false;
  return true;
}

std::string size_text(int64_t size, const char* any) {
  return size == -1 ? any : std::to_string(size);
}

const char* name_of(MemoryFormat format) {
  return format == MemoryFormat::kChannelsLast ? "channels-last" : "contiguous";
}

}  // namespace

LaneEntry::LaneEntry(std::string input, MemoryFormat format, at::ScalarType type, at::Device device)
    : input_(std::move(input)), format_(format), type_(type), device_(device) {}

at::Tensor LaneEntry::enter(const at::Tensor& x, at::IntArrayRef sizes, int64_t lanes) {
  if (!has_sizes(x, sizes, lanes))
    fail_usage("{}: want [{},B,{},{},{}], got {}", input_, lanes, size_text(sizes[0], "C"),
               size_text(sizes[1], "H"), size_text(sizes[2], "W"), c10::str(x.sizes()));
  if (x.device() != device_)
    fail_usage("{}: want it on {}, got {}; move it there", input_, device_.str(), x.device().str());
  if (x.scalar_type() == type_ && (x.numel() == 0 || lies_in(x, format_))) return with_strides_of(x, format_);

  num_conversions_ += 1;
  if (num_conversions_ == 2)
    TORCH_WARN(input_, " comes as ", x.scalar_type(), " with strides ", x.strides(), " of ", x.sizes(),
               " and is converted to ", type_, " with ", name_of(format_),
               " lanes in every step; make it so where it is loaded (empty_stacked())");
  at::Tensor converted = empty_lanes(x.sizes(), x.options().dtype(type_).requires_grad(false), format_);
  converted.copy_(x);
  return converted;
}

void check_layout_after(const std::string& op, const at::Tensor& stacked, MemoryFormat format) {
  if (stacked.dim() != 5 || stacked.numel() == 0 || lies_in(stacked, format)) return;
  fail("{}: its output does not have {} lanes: strides {} of {}; this is a bug of that op", op,
       name_of(format), c10::str(stacked.strides()), c10::str(stacked.sizes()));
}

}  // namespace espalier::lanes
