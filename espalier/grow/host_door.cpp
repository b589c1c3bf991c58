#include "espalier/grow/host_door.h"

#include <c10/util/Exception.h>

#include "espalier/core/error.h"
#include "espalier/lanes/lane_tensor.h"

namespace espalier::grow {
namespace {

// Whether every lane of [L,B,C,H,W] is dense in the format's order, by its strides alone: is_contiguous() of
// a lane would have to make a tensor of it first. An axis of one element has no say.
bool lies_in(const at::Tensor& stacked, MemoryFormat format) {
  static constexpr int kChannelsLast[] = {2, 4, 3, 1}, kContiguous[] = {4, 3, 2, 1};  // innermost first
  int64_t stride = 1;
  for (const int axis : format == MemoryFormat::kChannelsLast ? kChannelsLast : kContiguous) {
    if (stacked.size(axis) != 1 && stacked.stride(axis) != stride) return false;
    stride *= stacked.size(axis);
  }
  return true;
}

const char* name_of(MemoryFormat format) {
  return format == MemoryFormat::kChannelsLast ? "channels-last" : "contiguous";
}

}  // namespace

HostDoor::HostDoor(MemoryFormat format, at::ScalarType type, at::Device device)
    : format_(format), type_(type), device_(device) {}

at::Tensor HostDoor::enter(const at::Tensor& x, at::IntArrayRef sizes, int64_t lanes) {
  if (x.dim() != 5 || x.size(0) != lanes || x.sizes().slice(2) != sizes)
    fail_usage("host: x: want [{},B,{},{},{}], got {}", lanes, sizes[0], sizes[1], sizes[2],
               c10::str(x.sizes()));
  if (x.device() != device_)
    fail_usage("host: x: want it on {}, got {}; move it there", device_.str(), x.device().str());
  if (x.scalar_type() == type_ && (x.numel() == 0 || lies_in(x, format_))) return x;

  num_conversions_ += 1;
  if (num_conversions_ == 2)
    TORCH_WARN("host: x comes as ", x.scalar_type(), " with strides ", x.strides(), " of ", x.sizes(),
               " and is converted to ", type_, " with ", name_of(format_),
               " lanes in every step; make it so where it is loaded (empty_stacked())");
  at::Tensor converted =
      lanes::empty_lanes(x.sizes(), x.options().dtype(type_).requires_grad(false), format_);
  converted.copy_(x);
  return converted;
}

void check_layout_after(const std::string& op, const at::Tensor& stacked, MemoryFormat format) {
  if (stacked.dim() != 5 || stacked.numel() == 0 || lies_in(stacked, format)) return;
  fail("{}: its output does not have {} lanes: strides {} of {}; this is a bug of that op", op,
       name_of(format), c10::str(stacked.strides()), c10::str(stacked.sizes()));
}

}  // namespace espalier::grow
