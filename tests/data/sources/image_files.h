// Small JPEG and PNG files for the tests of the readers, and a folder that removes itself.
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// After <cstdio>: jpeglib.h uses FILE and size_t without declaring them.
#include <jpeglib.h>
#include <png.h>

#include "tests/support/temporary_folder.h"
namespace espalier::data::testing {

using Bytes = std::vector<std::byte>;

inline Bytes to_bytes(std::span<const uint8_t> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

inline std::vector<uint8_t> to_u8(std::span<const std::byte> bytes) {
  std::vector<uint8_t> values;
  for (const std::byte b : bytes) values.push_back(static_cast<uint8_t>(b));
  return values;
}

struct PngSpec {
  uint32_t height = 1;
  uint32_t width = 1;
  int color_type = PNG_COLOR_TYPE_RGB;
  int bit_depth = 8;
  int interlace = PNG_INTERLACE_NONE;
  std::vector<png_color> palette = {};
  std::vector<png_byte> palette_alpha = {};
  int grey_key = -1;  // the grey value that is transparent
};

// `rows` as they stand in a PNG: [H, bytes of a row], 16-bit values big endian, fewer than 8 bits packed.
inline Bytes encode_png(const PngSpec& spec, std::vector<uint8_t> rows) {
  Bytes file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep data, size_t size) {
        auto& out = *static_cast<Bytes*>(png_get_io_ptr(p));
        const auto* begin = reinterpret_cast<const std::byte*>(data);
        out.insert(out.end(), begin, begin + size);
      },
      nullptr);
  png_set_IHDR(png, info, spec.width, spec.height, spec.bit_depth, spec.color_type, spec.interlace,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!spec.palette.empty()) {
    png_set_PLTE(png, info, spec.palette.data(), static_cast<int>(spec.palette.size()));
  }
  if (!spec.palette_alpha.empty()) {
    png_set_tRNS(png, info, spec.palette_alpha.data(), static_cast<int>(spec.palette_alpha.size()), nullptr);
  }
  if (spec.grey_key >= 0) {
    png_color_16 key = {};
    key.gray = static_cast<png_uint_16>(spec.grey_key);
    png_set_tRNS(png, info, nullptr, 0, &key);
  }
  std::vector<png_bytep> pointers;
  const size_t row_bytes = rows.size() / spec.height;
  for (size_t y = 0; y < spec.height; ++y) pointers.push_back(rows.data() + y * row_bytes);
  png_set_rows(png, info, pointers.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

inline std::vector<uint8_t> big_endian(std::span<const uint16_t> values) {
  std::vector<uint8_t> bytes;
  for (const uint16_t v : values) {
    bytes.push_back(static_cast<uint8_t>(v >> 8));
    bytes.push_back(static_cast<uint8_t>(v & 0xFF));
  }
  return bytes;
}

struct JpegSpec {
  uint32_t height = 1;
  uint32_t width = 1;
  int channels = 3;  // 1, 3, or 4: CMYK
  bool is_progressive = false;
  bool is_arithmetic = false;
};

// `values` is [H,W,C].
inline Bytes encode_jpeg(const JpegSpec& spec, std::vector<uint8_t> values) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_height = spec.height;
  jpeg.image_width = spec.width;
  jpeg.input_components = spec.channels;
  jpeg.in_color_space = spec.channels == 1 ? JCS_GRAYSCALE : spec.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  jpeg.arith_code = spec.is_arithmetic ? TRUE : FALSE;
  if (spec.is_progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  const size_t row_bytes = size_t{spec.width} * static_cast<size_t>(spec.channels);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = values.data() + jpeg.next_scanline * row_bytes;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  Bytes file = to_bytes({memory, size});
  std::free(memory);
  return file;
}

// An 8-bit PNG, every value the same.
inline Bytes flat_png(uint32_t height, uint32_t width, uint8_t value, int color_type = PNG_COLOR_TYPE_RGB) {
  const size_t channels = color_type == PNG_COLOR_TYPE_GRAY ? 1 : color_type == PNG_COLOR_TYPE_RGB ? 3 : 4;
  return encode_png({.height = height, .width = width, .color_type = color_type},
                    std::vector<uint8_t>(size_t{height} * width * channels, value));
}

// A 16-bit grey PNG, every value the same.
inline Bytes flat_depth_png(uint32_t height, uint32_t width, uint16_t value) {
  const std::vector<uint16_t> values(size_t{height} * width, value);
  return encode_png({.height = height, .width = width, .color_type = PNG_COLOR_TYPE_GRAY, .bit_depth = 16},
                    big_endian(values));
}

using support::TemporaryFolder;

}  // namespace espalier::data::testing
