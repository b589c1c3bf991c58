#include "espalier/data/sources/images/channels.h"

#include <gtest/gtest.h>

#include <vector>

#include "espalier/core/error.h"
#include "tests/data/sources/image_files.h"

namespace espalier::data {
namespace {

std::vector<uint8_t> converted(int64_t from, const std::vector<uint8_t>& pixel, int64_t to) {
  const ImageShape shape{.height = 1, .width = static_cast<int64_t>(pixel.size()) / from, .channels = from};
  testing::Bytes out(static_cast<size_t>(shape.width * to));
  convert_channels(shape, testing::to_bytes(pixel), to, out);
  return testing::to_u8(out);
}

TEST(Channels, RepeatGreyAndLeaveOutAlpha) {
  EXPECT_EQ(converted(1, {7, 200}, 3), (std::vector<uint8_t>{7, 7, 7, 200, 200, 200}));
  EXPECT_EQ(converted(2, {7, 1, 200, 2}, 1), (std::vector<uint8_t>{7, 200}));
  EXPECT_EQ(converted(2, {7, 1}, 3), (std::vector<uint8_t>{7, 7, 7}));
  EXPECT_EQ(converted(4, {1, 2, 3, 9}, 3), (std::vector<uint8_t>{1, 2, 3}));
}

// By hand: (19595 R + 38470 G + 7471 B + 32768) / 65536, rounded down.
TEST(Channels, OfColourBecomeItsLuma) {
  EXPECT_EQ(converted(3, {255, 0, 0, 0, 255, 0, 0, 0, 255}, 1), (std::vector<uint8_t>{76, 150, 29}));
  EXPECT_EQ(converted(3, {255, 255, 255, 12, 200, 77}, 1), (std::vector<uint8_t>{255, 130}));
  EXPECT_EQ(converted(4, {255, 0, 0, 3}, 1), (std::vector<uint8_t>{76}));
}

TEST(Channels, RefuseWhatTheyCannotConvert) {
  testing::Bytes out(2);
  EXPECT_THROW(convert_channels({.height = 1, .width = 1, .channels = 1},
                                testing::to_bytes(std::vector<uint8_t>{1}), 2, out),
               Error);
}

}  // namespace
}  // namespace espalier::data
