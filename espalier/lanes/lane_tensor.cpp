#include "espalier/lanes/lane_tensor.h"

#include <ATen/ops/empty.h>

#include <vector>

namespace espalier::lanes {

at::Tensor empty_lanes(at::IntArrayRef sizes, const at::TensorOptions& options, MemoryFormat format) {
  TORCH_CHECK(!sizes.empty(), "empty_lanes: sizes: want [L,...], got ", sizes);
  if (sizes.size() == 5) return empty_stacked(sizes, format, options);
  // As images of one pixel a value: the same slabs, the same alignment.
  const int64_t values = c10::multiply_integers(sizes.slice(1));
  at::Tensor slabs = empty_stacked({sizes[0], 1, values, 1, 1}, MemoryFormat::kChannelsLast, options);
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t axis = sizes.size() - 1; axis-- > 1;) strides[axis] = strides[axis + 1] * sizes[axis + 1];
  strides[0] = slabs.stride(0);
  return slabs.as_strided_(sizes, strides);
}

at::Tensor zero_lanes(at::IntArrayRef sizes, const at::TensorOptions& options, MemoryFormat format) {
  at::Tensor lanes = empty_lanes(sizes, options, format);
  const auto item_bytes = static_cast<int64_t>(lanes.element_size());
  lanes.as_strided({static_cast<int64_t>(lanes.storage().nbytes()) / item_bytes}, {1}).zero_();
  return lanes;
}

MemoryFormat format_of(const at::Tensor& stacked) {
  // By the stride outright: with one channel both orders are one, and is_contiguous() would tell neither.
  if (stacked.size(0) == 0 || stacked.stride(2) == 1) return MemoryFormat::kChannelsLast;
  return stacked.select(0, 0).is_contiguous() ? MemoryFormat::kContiguous : MemoryFormat::kChannelsLast;
}

at::Tensor as_lanes(const at::Tensor& stacked, MemoryFormat format) {
  if (stacked.size(0) == 0 || stacked.select(0, 0).is_contiguous(torch_format(format))) return stacked;
  const at::Tensor copy = empty_lanes(stacked.sizes(), stacked.options(), format);
  copy.copy_(stacked);
  return copy;
}

at::Tensor per_lane(const at::Tensor& values, const at::Tensor& stacked) {
  std::vector<int64_t> sizes(static_cast<size_t>(stacked.dim()), 1);
  sizes[0] = values.size(0);
  return (values.is_floating_point() ? values.to(stacked.scalar_type()) : values).view(sizes);
}

at::ScalarType sum_type(const at::Tensor& values) {
  return values.is_cpu() || values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_stacked(const at::Tensor& x, const char* function, const char* argument) {
  TORCH_CHECK(x.dim() == 5 && x.is_floating_point(), function, ": ", argument,
              ": want [L,B,C,H,W] of floats, got ", x.sizes(), " ", x.scalar_type());
  TORCH_CHECK(x.numel() == 0 || is_stacked_channels_last(x) || x.select(0, 0).is_contiguous(), function, ": ",
              argument, ": want every lane channels-last, got strides ", x.strides(), " of ", x.sizes(),
              "; make it with empty_stacked()");
}

void check_sizes(const at::Tensor& tensor, at::IntArrayRef sizes, const char* function, const char* argument,
                 const char* want) {
  TORCH_CHECK(tensor.sizes() == sizes, function, ": ", argument, ": want ", want, " = ", sizes, ", got ",
              tensor.sizes());
}

void check_mask(const at::Tensor& mask, int64_t lanes, int64_t batch, const char* function) {
  if (!mask.defined()) return;
  TORCH_CHECK(mask.scalar_type() == at::kBool, function, ": mask: want bool, got ", mask.scalar_type());
  check_sizes(mask, {lanes, batch}, function, "mask", "[L,B]");
}

}  // namespace espalier::lanes
