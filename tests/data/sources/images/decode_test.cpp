#include "espalier/data/sources/images/decode.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "espalier/core/error.h"
#include "tests/data/sources/image_files.h"

namespace espalier::data {
namespace {

using testing::Bytes;
using testing::encode_jpeg;
using testing::encode_png;
using testing::to_u8;

std::vector<uint8_t> random_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> values(count);
  for (uint8_t& v : values) v = static_cast<uint8_t>(random());
  return values;
}

// Slow waves, so that JPEG keeps them closely. [H,W,C]
std::vector<uint8_t> smooth_values(size_t height, size_t width, size_t channels) {
  std::vector<uint8_t> values;
  for (size_t y = 0; y < height; ++y) {
    for (size_t x = 0; x < width; ++x) {
      for (size_t c = 0; c < channels; ++c)
        values.push_back(static_cast<uint8_t>(60 + 3 * y + 2 * x + 10 * c));
    }
  }
  return values;
}

std::string error_of(std::span<const std::byte> file) {
  try {
    decode_image(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

ImageShape shape_of(int64_t height, int64_t width, int64_t channels, SampleType type = SampleType::kU8) {
  return {.height = height, .width = width, .channels = channels, .type = type};
}

TEST(Image, ReadsPngOfEveryColourTypeExactly) {
  const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                       PNG_COLOR_TYPE_RGB_ALPHA};
  for (uint32_t channels = 1; channels <= 4; ++channels) {
    for (const int interlace : {PNG_INTERLACE_NONE, PNG_INTERLACE_ADAM7}) {
      const auto values = random_values(7 * 13 * channels, channels);
      const Image image = decode_image(encode_png(
          {.height = 7, .width = 13, .color_type = types[channels - 1], .interlace = interlace}, values));
      EXPECT_EQ(image.shape, shape_of(7, 13, channels));
      EXPECT_EQ(to_u8(image.values), values) << channels << " channels, interlace " << interlace;
    }
  }
}

TEST(Image, KeepsSixteenBitValuesExactly) {
  const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                       PNG_COLOR_TYPE_RGB_ALPHA};
  for (uint32_t channels = 1; channels <= 4; ++channels) {
    std::vector<uint16_t> values;
    for (uint32_t i = 0; i < 300 * channels; ++i) values.push_back(static_cast<uint16_t>(i * 55u + i));
    values[0] = 0x0102;
    values[1] = 65535;
    const Image image = decode_image(
        encode_png({.height = 20, .width = 15, .color_type = types[channels - 1], .bit_depth = 16},
                   testing::big_endian(values)));
    ASSERT_EQ(image.shape, shape_of(20, 15, channels, SampleType::kU16));
    std::vector<uint16_t> got(values.size());
    std::memcpy(got.data(), image.values.data(), image.values.size());
    EXPECT_EQ(got, values) << channels << " channels";
  }
}

TEST(Image, ExpandsPalettesAndFewBitsToEight) {
  const std::vector<png_color> palette = {{10, 20, 30}, {40, 50, 60}, {70, 80, 90}, {1, 2, 3}};
  const testing::PngSpec indexed{
      .height = 1, .width = 3, .color_type = PNG_COLOR_TYPE_PALETTE, .bit_depth = 2, .palette = palette};
  Image image = decode_image(encode_png(indexed, {0b10'00'01'00}));
  EXPECT_EQ(image.shape, shape_of(1, 3, 3));
  EXPECT_EQ(to_u8(image.values), (std::vector<uint8_t>{70, 80, 90, 10, 20, 30, 40, 50, 60}));

  testing::PngSpec transparent = indexed;
  transparent.palette_alpha = {0, 128};
  image = decode_image(encode_png(transparent, {0b10'00'01'00}));
  EXPECT_EQ(image.shape, shape_of(1, 3, 4));
  EXPECT_EQ(to_u8(image.values), (std::vector<uint8_t>{70, 80, 90, 255, 10, 20, 30, 0, 40, 50, 60, 128}));

  image = decode_image(encode_png(
      {.height = 1, .width = 4, .color_type = PNG_COLOR_TYPE_GRAY, .bit_depth = 1}, {0b1010'0000}));
  EXPECT_EQ(image.shape, shape_of(1, 4, 1));
  EXPECT_EQ(to_u8(image.values), (std::vector<uint8_t>{255, 0, 255, 0}));
}

TEST(Image, MakesATransparentGreyAnAlphaChannel) {
  const Image image = decode_image(
      encode_png({.height = 1, .width = 2, .color_type = PNG_COLOR_TYPE_GRAY, .grey_key = 7}, {7, 9}));
  EXPECT_EQ(image.shape, shape_of(1, 2, 2));
  EXPECT_EQ(to_u8(image.values), (std::vector<uint8_t>{7, 0, 9, 255}));
}

TEST(Image, ReadsGreyAndColourJpegClosely) {
  for (const int channels : {1, 3}) {
    for (const bool is_progressive : {false, true}) {
      const auto values = smooth_values(19, 33, static_cast<size_t>(channels));
      const Image image = decode_image(encode_jpeg(
          {.height = 19, .width = 33, .channels = channels, .is_progressive = is_progressive}, values));
      ASSERT_EQ(image.shape, shape_of(19, 33, channels));
      const auto got = to_u8(image.values);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], values[i], 6) << "value " << i;
    }
  }
}

TEST(Image, RefusesCmykArithmeticAndForeignFilesByName) {
  EXPECT_NE(
      error_of(encode_jpeg({.height = 8, .width = 8, .channels = 4}, random_values(256, 1))).find("CMYK"),
      std::string::npos);
  EXPECT_NE(error_of(encode_jpeg({.height = 8, .width = 8, .is_arithmetic = true}, random_values(192, 1)))
                .find("arithmetic"),
            std::string::npos);
  const std::string gif = "GIF89a..";
  EXPECT_NE(error_of(std::as_bytes(std::span(gif))).find("neither a JPEG nor a PNG"), std::string::npos);
  EXPECT_NE(error_of({}).find("empty"), std::string::npos);
}

TEST(Image, RefusesEveryTruncation) {
  const std::vector<Bytes> files = {
      encode_jpeg({.height = 20, .width = 20}, smooth_values(20, 20, 3)),
      encode_jpeg({.height = 20, .width = 20, .is_progressive = true}, smooth_values(20, 20, 3)),
      encode_png({.height = 20, .width = 20}, random_values(1200, 2)),
      encode_png({.height = 9,
                  .width = 9,
                  .color_type = PNG_COLOR_TYPE_GRAY,
                  .bit_depth = 16,
                  .interlace = PNG_INTERLACE_ADAM7},
                 random_values(162, 3)),
  };
  for (const Bytes& file : files) {
    EXPECT_EQ(error_of(file), "");
    for (size_t size = 0; size < file.size(); ++size) {
      // A copy of exactly that length, so that a sanitiser sees a read past the end.
      const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_NE(error_of(cut), "") << "cut to " << size << " of " << file.size() << " bytes";
    }
  }
}

TEST(Image, RefusesAJpegWithoutItsEndMarker) {
  Bytes file = encode_jpeg({.height = 8, .width = 8}, smooth_values(8, 8, 3));
  ASSERT_EQ(file.back(), std::byte{0xD9});
  file.back() = std::byte{0xD0};  // a restart marker: all pixels are there, and more was to come
  EXPECT_NE(error_of(file), "");
}

TEST(Image, AcceptsBytesAfterTheEnd) {
  Bytes file = encode_jpeg({.height = 8, .width = 8}, smooth_values(8, 8, 3));
  file.resize(file.size() + 100);
  EXPECT_EQ(error_of(file), "");
}

TEST(Image, DecodesOrThrowsWhateverBytesAreFlipped) {
  const std::vector<Bytes> files = {
      encode_jpeg({.height = 24, .width = 17}, random_values(24 * 17 * 3, 4)),
      encode_jpeg({.height = 24, .width = 17, .is_progressive = true}, random_values(24 * 17 * 3, 5)),
      encode_jpeg({.height = 9, .width = 9, .channels = 1}, random_values(81, 6)),
      encode_png({.height = 12, .width = 11}, random_values(12 * 11 * 3, 7)),
      encode_png({.height = 6,
                  .width = 8,
                  .color_type = PNG_COLOR_TYPE_PALETTE,
                  .interlace = PNG_INTERLACE_ADAM7,
                  .palette = {{1, 2, 3}, {4, 5, 6}}},
                 std::vector<uint8_t>(48, 1)),
  };
  constexpr uint32_t kSeed = 20240601;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  int num_refused = 0;
  int num_tried = 0;
  for (const Bytes& file : files) {
    for (int i = 0; i < 1500; ++i) {
      Bytes damaged = file;
      const uint32_t num_flips = 1 + random() % 8;
      // Half of the time in the header, where sizes and tables are.
      const size_t range = i % 2 == 0 ? std::min<size_t>(damaged.size(), 200) : damaged.size();
      for (uint32_t flip = 0; flip < num_flips; ++flip)
        damaged[random() % range] = static_cast<std::byte>(random());
      ++num_tried;
      Image image;
      std::string error;
      try {
        image = decode_image(damaged);
      } catch (const Error& refusal) {  // any other exception or signal fails the test
        error = refusal.what();
        ++num_refused;
        EXPECT_FALSE(error.empty());
        EXPECT_LE(error.size(), 300u) << error;
        for (const char c : error) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << error;
        continue;
      }
      // As many values as the shape says, and no more than a file of that length can hold.
      EXPECT_EQ(static_cast<int64_t>(image.values.size()), image.shape.size_bytes());
      EXPECT_GT(image.shape.size_bytes(), 0);
      EXPECT_LE(image.shape.size_bytes(), int64_t{4096} * static_cast<int64_t>(damaged.size()));
    }
  }
  EXPECT_GT(num_refused, num_tried / 2);
  EXPECT_LT(num_refused, num_tried) << "damage to a pixel of a JPEG is seen by nobody";
}

// The first SOF0 or SOF2 segment's height and width, big endian, 5 bytes after its marker.
void set_jpeg_size(Bytes& file, uint16_t height, uint16_t width) {
  for (size_t i = 0; i + 9 < file.size(); ++i) {
    const bool is_sof = file[i + 1] == std::byte{0xC0} || file[i + 1] == std::byte{0xC2};
    if (file[i] != std::byte{0xFF} || !is_sof) continue;
    file[i + 5] = static_cast<std::byte>(height >> 8);
    file[i + 6] = static_cast<std::byte>(height & 0xFF);
    file[i + 7] = static_cast<std::byte>(width >> 8);
    file[i + 8] = static_cast<std::byte>(width & 0xFF);
    return;
  }
  FAIL() << "no SOF segment";
}

TEST(Image, RefusesHugeSizesBeforeItAllocates) {
  for (const bool is_progressive : {false, true}) {
    Bytes file =
        encode_jpeg({.height = 8, .width = 8, .is_progressive = is_progressive}, smooth_values(8, 8, 3));
    set_jpeg_size(file, 65000, 65000);
    EXPECT_NE(error_of(file).find("65000x65000 (height x width); at most"), std::string::npos)
        << error_of(file);
    set_jpeg_size(file, 16000, 16000);  // within the limit, but not in so few bytes
    EXPECT_NE(error_of(file).find("cannot hold"), std::string::npos) << error_of(file);
  }
  // An IHDR whose checksum is right: the size alone is the lie.
  Bytes file = testing::flat_png(1, 1, 0);
  const auto set_png_size = [&file](uint32_t height, uint32_t width) {
    png_save_uint_32(reinterpret_cast<png_bytep>(file.data()) + 16, width);
    png_save_uint_32(reinterpret_cast<png_bytep>(file.data()) + 20, height);
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(file.data()) + 12, 17);
    png_save_uint_32(reinterpret_cast<png_bytep>(file.data()) + 29, static_cast<png_uint_32>(crc));
  };
  set_png_size(0x7FFFFFFF, 0x7FFFFFFF);
  EXPECT_NE(error_of(file).find("2147483647x2147483647 (height x width); at most"), std::string::npos)
      << error_of(file);
  set_png_size(16000, 16000);
  EXPECT_NE(error_of(file).find("cannot hold"), std::string::npos) << error_of(file);
}

TEST(Image, GivesItsShapeBeforeItsPixelsAndChecksTheOutput) {
  const Bytes file = testing::flat_png(3, 5, 200);
  const auto decoder = open_image(file);
  EXPECT_EQ(decoder->shape(), shape_of(3, 5, 3));
  Bytes out(44);
  EXPECT_THROW(decoder->decode(out), Error);
  out.resize(45);
  decoder->decode(out);
  EXPECT_EQ(to_u8(out), std::vector<uint8_t>(45, 200));
  EXPECT_EQ(describe(decoder->shape()), "3x5 (height x width), 3 channels, uint8");
}

}  // namespace
}  // namespace espalier::data
