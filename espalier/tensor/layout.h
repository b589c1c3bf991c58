// The layout contract: every image tensor is channels-last, and a stacked one is a row of channels-last
// slabs.
//
//   image    [B,C,H,W], memory order B,H,W,C
//   stacked  [L,B,C,H,W], memory order L,B,H,W,C; every lane is one dense channels-last slab that starts on a
//            256-byte boundary of its storage, since CPU kernels change their rounding with alignment and a
//            lane's bits must not depend on its neighbours
//
// MemoryFormat::kContiguous (NCHW) exists for comparison alone. Header-only, so that espalier_core needs no
// torch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <cstdint>

namespace espalier {

enum class MemoryFormat { kChannelsLast, kContiguous };

inline constexpr int64_t kLaneAlignmentBytes = 256;

inline c10::MemoryFormat torch_format(MemoryFormat format) {
  return format == MemoryFormat::kChannelsLast ? c10::MemoryFormat::ChannelsLast
                                               : c10::MemoryFormat::Contiguous;
}

// [B,C,H,W], uninitialised. Strides are given outright: where C == 1 or H == W == 1 a memory format alone
// would leave torch free to call the tensor contiguous.
inline at::Tensor empty_images(at::IntArrayRef sizes, MemoryFormat format, const at::TensorOptions& options) {
  const int64_t channels = sizes[1], height = sizes[2], width = sizes[3];
  const int64_t sample = channels * height * width;
  return format == MemoryFormat::kChannelsLast
             ? at::empty_strided(sizes, {sample, 1, width * channels, channels}, options)
             : at::empty_strided(sizes, {sample, height * width, width, 1}, options);
}

// [L,B,C,H,W], uninitialised.
inline at::Tensor empty_stacked(at::IntArrayRef sizes, MemoryFormat format,
                                const at::TensorOptions& options) {
  const int64_t lanes = sizes[0], batch = sizes[1], channels = sizes[2], height = sizes[3], width = sizes[4];
  const int64_t sample = channels * height * width;
  const auto item_bytes = static_cast<int64_t>(c10::elementSize(c10::typeMetaToScalarType(options.dtype())));
  const int64_t unit = kLaneAlignmentBytes / item_bytes;
  const int64_t lane = (batch * sample + unit - 1) / unit * unit;
  // Shaped in place: a view would keep a second holder of the memory, and nobody could write into a gradient.
  at::Tensor made = at::empty({lanes * lane}, options);
  return format == MemoryFormat::kChannelsLast
             ? made.as_strided_(sizes, {lane, sample, 1, width * channels, channels})
             : made.as_strided_(sizes, {lane, sample, height * width, width, 1});
}

// Whether [B,C,H,W] lies in memory as B,H,W,C (true also where C == 1 or H == W == 1 makes both orders one).
inline bool is_channels_last(const at::Tensor& images) {
  return images.dim() == 4 && images.is_contiguous(c10::MemoryFormat::ChannelsLast);
}

}  // namespace espalier
