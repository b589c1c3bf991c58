#include "espalier/watch/tensorboard/png.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <vector>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::watch {
namespace {

TEST(Png, HasTheChunksOfTheStandardByteForByte) {
  const std::vector<uint8_t> pixels{10, 20, 30, 40, 50, 60};
  const std::string png = png_of({.width = 2, .height = 3, .channels = 1, .bytes = pixels});
  ASSERT_GE(png.size(), 41u);
  EXPECT_EQ(png.substr(0, 29),
            std::string("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\2\0\0\0\3\x08\0\0\0\0", 29));
  EXPECT_EQ(png.substr(png.size() - 12), std::string("\0\0\0\0IEND\xae\x42\x60\x82", 12));

  const std::string data = png.substr(33, png.size() - 33 - 12);  // IDAT, with length, name and checksum
  ASSERT_EQ(data.substr(0, 8), std::string("\0\0\0", 3) + static_cast<char>(data.size() - 12) + "IDAT");
  std::string rows(64, '\0');
  uLongf size = rows.size();
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                       reinterpret_cast<const Bytef*>(data.data() + 8), data.size() - 12),
            Z_OK);
  EXPECT_EQ(rows.substr(0, size), std::string("\0\x0a\x14\0\x1e\x28\0\x32\x3c", 9));
}

// Whole pictures of every kind are read back by a decoder in tensorboard_test.py.

TEST(Png, RefusesSizesThatDoNotFitTheBytes) {
  const std::vector<uint8_t> pixels(12);
  EXPECT_ERROR(png_of({.width = 2, .height = 3, .channels = 3, .bytes = pixels}), Error, "2 x 3", "12 bytes");
  EXPECT_ERROR(png_of({.width = 0, .height = 3, .channels = 3, .bytes = {}}), Error, "0 x 3", "at least one");
  EXPECT_ERROR(png_of({.width = 2, .height = 1, .channels = 6, .bytes = pixels}), Error, "6 channels",
               "1 to 4");
  EXPECT_ERROR(png_of({.width = int64_t{1} << 31, .height = 1, .channels = 1, .bytes = pixels}), Error,
               "2147483648 x 1");
  EXPECT_ERROR(png_of({.width = 2147483647, .height = 2147483647, .channels = 4, .bytes = pixels}), Error,
               "12 bytes");
}

}  // namespace
}  // namespace espalier::watch
