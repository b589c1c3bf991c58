// JPEG and PNG files to values in channels-last order.
//
// Kept true, whatever the bytes (they come from outside and are fuzzed):
// - every failure is an espalier::Error
//   whose text is a phrase about the bytes ("the PNG is damaged: ...");
//   the caller knows the file's name and adds it;
// - no memory is taken for pixels before the size was checked against the limits below and against what a
//   file of that length can hold at all;
// - a file that ends early or whose data is damaged is an error: libjpeg only warns and fills in grey.
// Values are those of the file: no gamma, no colour profile, no EXIF rotation, no premultiplied alpha.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/data/sources/host_dataset.h"

namespace espalier::data {

// JPEG's own limit on a side. It also keeps the fixed-point weights of the resize well above their rounding.
inline constexpr int64_t kMaxImageSide = 65535;
// 16384 x 16384, far beyond a training image. 2 GiB at most (four channels of 16 bits).
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 28;

struct ImageShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;  // 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha
  SampleType type = SampleType::kU8;

  int64_t size_bytes() const { return height * width * channels * bytes_of(type); }
  bool operator==(const ImageShape&) const = default;
};

// "32x48 (height x width), 3 channels, uint8".
std::string describe(const ImageShape& shape);

struct Image {
  ImageShape shape;
  std::vector<std::byte> values;  // [H,W,C] u8|u16 host, in this machine's byte order
};

// A file whose header was read and found sound; its pixels are decoded where the caller wants them.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  const ImageShape& shape() const { return shape_; }
  // Writes the pixels to `out` ([H,W,C], exactly shape().size_bytes()). May be called once; when it fails,
  // `out` holds anything.
  virtual void decode(std::span<std::byte> out) = 0;

 protected:
  ImageShape shape_;
};

// JPEG with 1 or 3 channels (CMYK is refused); PNG with 8 or 16 bits, fewer bits and palettes expanded to 8,
// transparency of any kind as an alpha channel. Told apart by their first bytes. `file` must outlive the
// decoder.
std::unique_ptr<ImageDecoder> open_image(std::span<const std::byte> file);

Image decode_image(std::span<const std::byte> file);

}  // namespace espalier::data
