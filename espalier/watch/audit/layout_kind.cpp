#include "espalier/watch/audit/layout_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <vector>

#include "espalier/core/error.h"

namespace espalier::watch {
namespace {

// Whether the axes lie in memory in this order, outermost first: dense, but for gaps after the entries of the
// outermost one.
bool lies_in_order(const Geometry& tensor, std::span<const size_t> order) {
  int64_t dense = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t size = tensor.sizes[order[i]], stride = tensor.strides[order[i]];
    if (size == 1) continue;
    if (i == 0 ? stride < dense : stride != dense) return false;
    dense *= size;
  }
  return true;
}

bool is_row_major(const Geometry& tensor) {
  std::vector<size_t> order(tensor.sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return lies_in_order(tensor, order);
}

// The stride of `axis`, counted from the last; 0 where broadcasting alone gives the tensor this axis.
int64_t stride_from_last(const Geometry& tensor, size_t axis) {
  const size_t rank = tensor.sizes.size();
  if (axis >= rank || tensor.sizes[rank - 1 - axis] == 1) return 0;
  return tensor.strides[rank - 1 - axis];
}

// What cuDNN and ATen call the kernels that change a layout, and those that copy.
constexpr std::array<std::string_view, 4> kReformatNames{"nchwToNhwc", "nhwcToNchw", "tensorTransform",
                                                         "nhwcSliceC"};
constexpr std::array<std::string_view, 2> kCopyNames{"direct_copy", "CatArrayBatchedCopy"};
constexpr std::string_view kDeviceCopy = "Memcpy DtoD";

std::string word_at(std::string_view text, size_t at, size_t length) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  size_t begin = at, end = at + length;
  while (begin > 0 && is_part(text[begin - 1])) --begin;
  while (end < text.size() && is_part(text[end])) ++end;
  return std::string(text.substr(begin, end - begin));
}

}  // namespace

std::string_view layout_text(LayoutKind kind) {
  switch (kind) {
    case LayoutKind::kRows:
      return "rows";
    case LayoutKind::kContiguous:
      return "contiguous";
    case LayoutKind::kChannelsLast:
      return "channels-last";
    case LayoutKind::kStackedContiguous:
      return "stacked contiguous";
    case LayoutKind::kStackedChannelsLast:
      return "stacked channels-last";
    case LayoutKind::kEither:
      return "either";
    case LayoutKind::kOther:
      break;
  }
  return "other";
}

LayoutKind layout_of(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  if (sizes.size() != strides.size())
    fail("layout_of: strides: want one an axis, {}, got {}", sizes.size(), strides.size());
  const Geometry tensor{sizes, strides};
  const size_t rank = sizes.size();
  const bool is_image = rank == 4 || rank == 5;
  if (std::ranges::find(sizes, 0) != sizes.end()) return is_image ? LayoutKind::kEither : LayoutKind::kRows;
  const bool row_major = is_row_major(tensor);
  if (!is_image) {
    if (!row_major) return LayoutKind::kOther;
    return rank < 4 ? LayoutKind::kRows : LayoutKind::kContiguous;
  }
  constexpr std::array<size_t, 4> kImage{0, 2, 3, 1};
  constexpr std::array<size_t, 5> kStack{0, 1, 3, 4, 2};
  const bool channels_last = rank == 4 ? lies_in_order(tensor, kImage) : lies_in_order(tensor, kStack);
  if (row_major && channels_last) return LayoutKind::kEither;
  if (channels_last) return rank == 4 ? LayoutKind::kChannelsLast : LayoutKind::kStackedChannelsLast;
  if (row_major) return rank == 4 ? LayoutKind::kContiguous : LayoutKind::kStackedContiguous;
  return LayoutKind::kOther;
}

bool is_same_order(const Geometry& to, const Geometry& from) {
  const size_t rank = std::max(to.sizes.size(), from.sizes.size());
  for (size_t i = 0; i < rank; ++i) {
    const int64_t to_i = stride_from_last(to, i), from_i = stride_from_last(from, i);
    if (to_i == 0 || from_i == 0) continue;
    for (size_t j = i + 1; j < rank; ++j) {
      const int64_t to_j = stride_from_last(to, j), from_j = stride_from_last(from, j);
      if (to_j == 0 || from_j == 0) continue;
      if ((to_i < to_j && from_i > from_j) || (to_i > to_j && from_i < from_j)) return false;
    }
  }
  return true;
}

KernelClass classify_kernel(std::string_view name) {
  const auto found = [&](const auto& names, KernelKind kind) -> KernelClass {
    for (const std::string_view part : names)
      if (const size_t at = name.find(part); at != std::string_view::npos)
        return {kind, word_at(name, at, part.size())};
    return {};
  };
  if (name.find(kDeviceCopy) != std::string_view::npos) return {KernelKind::kCopy, std::string(kDeviceCopy)};
  const KernelClass reformat = found(kReformatNames, KernelKind::kReformat);
  return reformat.kind == KernelKind::kReformat ? reformat : found(kCopyNames, KernelKind::kCopy);
}

}  // namespace espalier::watch
