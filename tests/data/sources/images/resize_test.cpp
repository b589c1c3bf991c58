#include "espalier/data/sources/images/resize.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "espalier/core/error.h"

namespace espalier::data {
namespace {

std::vector<uint8_t> resize_u8(const std::vector<uint8_t>& in, ImageShape shape, ImageSize size) {
  std::vector<uint8_t> out(static_cast<size_t>(size.height * size.width * shape.channels));
  resize_into(shape, std::as_bytes(std::span(in)), size, std::as_writable_bytes(std::span(out)));
  return out;
}

std::vector<uint16_t> resize_u16(const std::vector<uint16_t>& in, ImageShape shape, ImageSize size) {
  shape.type = SampleType::kU16;
  std::vector<uint16_t> out(static_cast<size_t>(size.height * size.width * shape.channels));
  resize_into(shape, std::as_bytes(std::span(in)), size, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(Resize, KeepsAnImageOfTheSameSize) {
  std::vector<uint8_t> in(5 * 7 * 3);
  std::iota(in.begin(), in.end(), uint8_t{0});
  EXPECT_EQ(resize_u8(in, {.height = 5, .width = 7, .channels = 3}, {5, 7}), in);
}

TEST(Resize, BlendsNeighboursWhenEnlarging) {
  // Centres of the output at 0.25, 0.75, 1.25, 1.75: weights 1, 3:1, 1:3, 1.
  EXPECT_EQ(resize_u8({0, 100}, {.height = 1, .width = 2, .channels = 1}, {1, 4}),
            (std::vector<uint8_t>{0, 25, 75, 100}));
  EXPECT_EQ(resize_u8({0, 100}, {.height = 2, .width = 1, .channels = 1}, {4, 1}),
            (std::vector<uint8_t>{0, 25, 75, 100}));
}

TEST(Resize, AveragesOverAllItCoversWhenShrinking) {
  // A triangle two input pixels wide to each side: weights 1/8, 3/8, 3/8, 1/8 inside; at the left border 3/7,
  // 3/7, 1/7. Without antialiasing the stripes would give all 0 or all 255.
  const std::vector<uint8_t> stripes = {0, 240, 0, 240, 0, 240, 0, 240};
  EXPECT_EQ(resize_u8(stripes, {.height = 1, .width = 8, .channels = 1}, {1, 4}),
            (std::vector<uint8_t>{103, 120, 120, 137}));
}

TEST(Resize, MixesNoChannels) {
  const std::vector<uint8_t> in = {10, 200, 30, 10, 200, 30, 10, 200, 30, 10, 200, 30};  // [2,2,3]
  const auto out = resize_u8(in, {.height = 2, .width = 2, .channels = 3}, {3, 5});
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], in[i % 3]) << i;
}

TEST(Resize, KeepsWhiteWhiteAtEverySize) {
  for (int64_t size = 1; size <= 40; ++size) {
    const auto out = resize_u8(std::vector<uint8_t>(17 * 17, 255), {.height = 17, .width = 17, .channels = 1},
                               {.height = size, .width = 41 - size});
    EXPECT_EQ(out, std::vector<uint8_t>(out.size(), 255)) << size;
  }
}

TEST(Resize, InventsNoDepthBetweenTwoSurfaces) {
  const std::vector<uint16_t> in = {500, 4000, 500, 4000};  // [2,2,1]
  for (int64_t size = 1; size <= 9; ++size) {
    for (const uint16_t v : resize_u16(in, {.height = 2, .width = 2, .channels = 1}, {size, size})) {
      EXPECT_TRUE(v == 500 || v == 4000) << v;
    }
  }
  EXPECT_EQ(resize_u16({1, 2, 3, 4}, {.height = 1, .width = 4, .channels = 1}, {1, 2}),
            (std::vector<uint16_t>{2, 4}));
  EXPECT_EQ(resize_u16({1, 2, 3, 4}, {.height = 1, .width = 2, .channels = 2}, {1, 4}),
            (std::vector<uint16_t>{1, 2, 1, 2, 3, 4, 3, 4}));
}

TEST(Resize, RefusesSizesOutOfRangeAndBuffersThatDoNotFit) {
  const std::vector<uint8_t> in(4);
  std::vector<uint8_t> out(4);
  const ImageShape shape{.height = 2, .width = 2, .channels = 1};
  const auto run = [&](ImageSize size) {
    resize_into(shape, std::as_bytes(std::span(in)), size, std::as_writable_bytes(std::span(out)));
  };
  EXPECT_NO_THROW(run({1, 4}));
  EXPECT_THROW(run({0, 4}), Error);
  EXPECT_THROW(run({1, 70000}), Error);
  EXPECT_THROW(run({3, 3}), Error);
}

}  // namespace
}  // namespace espalier::data
