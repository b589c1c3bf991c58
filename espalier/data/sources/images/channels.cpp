#include "espalier/data/sources/images/channels.h"

#include "espalier/core/error.h"

namespace espalier::data {

void convert_channels(const ImageShape& shape, std::span<const std::byte> in, int64_t channels,
                      std::span<std::byte> out) {
  const int64_t pixels = shape.height * shape.width;
  if (shape.type != SampleType::kU8 || (channels != 1 && channels != 3) ||
      std::ssize(in) != shape.size_bytes() || std::ssize(out) != pixels * channels)
    fail("channels: want uint8 images and 1 or 3 channels, got {} and {}", describe(shape), channels);
  const bool has_colour = shape.channels >= 3;
  for (int64_t p = 0; p < pixels; ++p) {
    const auto value = [&](int64_t c) {
      return static_cast<uint32_t>(in[static_cast<size_t>(p * shape.channels + c)]);
    };
    for (int64_t c = 0; c < channels; ++c) {
      // Luma: 0.299 R + 0.587 G + 0.114 B, times 2^16 and rounded.
      const uint32_t made = !has_colour ? value(0)
                            : channels == 3
                                ? value(c)
                                : (value(0) * 19595 + value(1) * 38470 + value(2) * 7471 + 0x8000) >> 16;
      out[static_cast<size_t>(p * channels + c)] = static_cast<std::byte>(made);
    }
  }
}

}  // namespace espalier::data
