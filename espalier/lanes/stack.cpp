#include "espalier/lanes/stack.h"

#include <ATen/ops/empty.h>

#include <array>
#include <optional>
#include <vector>

#include "espalier/lanes/most_lanes.h"

namespace espalier::lanes {
namespace {

// The strides of B, C, H and W that empty_stacked() writes.
std::array<int64_t, 4> strides_in(const at::Tensor& stacked, MemoryFormat format) {
  const int64_t channels = stacked.size(2), height = stacked.size(3), width = stacked.size(4);
  const int64_t sample = channels * height * width;
  if (format == MemoryFormat::kChannelsLast) return {sample, 1, width * channels, channels};
  return {sample, height * width, width, 1};
}

bool has_strides_of(const at::Tensor& stacked, MemoryFormat format) {
  return stacked.strides().slice(1) == at::IntArrayRef(strides_in(stacked, format));
}

// What strides alone tell of lanes that lie in both orders. That of the samples has no say: it is the same in
// both, and single samples are cut from larger batches.
std::optional<MemoryFormat> told_by_strides(const at::Tensor& stacked) {
  const auto tells = [&](MemoryFormat format) {
    return stacked.strides().slice(2) == at::IntArrayRef(strides_in(stacked, format)).slice(1);
  };
  const bool last = tells(MemoryFormat::kChannelsLast), contiguous = tells(MemoryFormat::kContiguous);
  if (last == contiguous) return std::nullopt;
  return last ? MemoryFormat::kChannelsLast : MemoryFormat::kContiguous;
}

}  // namespace

at::Tensor empty_lanes(at::IntArrayRef sizes, const at::TensorOptions& options, MemoryFormat format) {
  TORCH_CHECK(!sizes.empty(), "empty_lanes: sizes: want [L,...], got ", sizes);
  TORCH_CHECK(!options.device().is_cuda() || sizes[0] <= kMostLanesOnCuda, "lanes: want at most ",
              kMostLanesOnCuda, " on one CUDA device, got ", sizes[0], "; share them out over more devices");
  if (sizes.size() == 5) return empty_stacked(sizes, format, options);
  // As images of one pixel per value: the same slabs, the same alignment.
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

bool lies_in(const at::Tensor& stacked, MemoryFormat format) {
  // By strides alone: is_contiguous() of a lane would have to make a tensor of it first.
  const std::array<int64_t, 4> strides = strides_in(stacked, format);
  for (int64_t axis = 1; axis < 5; ++axis)
    if (stacked.size(axis) != 1 && stacked.stride(axis) != strides[static_cast<size_t>(axis - 1)])
      return false;
  return true;
}

MemoryFormat format_of(const at::Tensor& stacked) {
  return common_format(stacked);
}

MemoryFormat common_format(at::TensorList stacks) {
  for (const at::Tensor& stacked : stacks) {
    const bool is_contiguous = lies_in(stacked, MemoryFormat::kContiguous);
    if (is_contiguous != lies_in(stacked, MemoryFormat::kChannelsLast))
      return is_contiguous ? MemoryFormat::kContiguous : MemoryFormat::kChannelsLast;
  }
  for (const at::Tensor& stacked : stacks)
    if (const auto told = told_by_strides(stacked)) return *told;
  return MemoryFormat::kChannelsLast;
}

at::Tensor with_strides_of(const at::Tensor& stacked, MemoryFormat format) {
  if (stacked.numel() == 0 || has_strides_of(stacked, format)) return stacked;
  TORCH_INTERNAL_ASSERT(lies_in(stacked, format));
  std::vector<int64_t> strides{stacked.stride(0)};
  for (const int64_t stride : strides_in(stacked, format)) strides.push_back(stride);
  return stacked.as_strided(stacked.sizes(), strides);
}

at::Tensor as_lanes(const at::Tensor& stacked, MemoryFormat format) {
  if (stacked.numel() == 0 || lies_in(stacked, format)) return with_strides_of(stacked, format);
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
  TORCH_CHECK(
      x.numel() == 0 || lies_in(x, MemoryFormat::kChannelsLast) || lies_in(x, MemoryFormat::kContiguous),
      function, ": ", argument, ": want every lane channels-last, got strides ", x.strides(), " of ",
      x.sizes(), "; make it with empty_stacked()");
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
