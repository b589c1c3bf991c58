#include "espalier/core/text/byte_size.h"

#include <gtest/gtest.h>

#include <limits>

namespace espalier {
namespace {

TEST(ByteSize, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_byte_size("0"), 0);
  EXPECT_EQ(parse_byte_size("17B"), 17);
  EXPECT_EQ(parse_byte_size("20GiB"), int64_t{20} << 30);
  EXPECT_EQ(parse_byte_size("20 gib"), int64_t{20} << 30);
  EXPECT_EQ(parse_byte_size("2T"), int64_t{2} << 40);
  EXPECT_EQ(parse_byte_size("3GB"), 3'000'000'000);
  EXPECT_EQ(parse_byte_size("1.5MiB"), 3 << 19);
}

TEST(ByteSize, KeepsEveryByteOfAWholeNumber) {
  const int64_t largest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(parse_byte_size(std::to_string(largest)), largest);
  EXPECT_EQ(parse_byte_size(std::to_string(largest - 1)), largest - 1);
}

TEST(ByteSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "-1", "-0", "20GiBs", "20 G iB", "1e3", "nan", "inf", "0x10",
                           "8388608TiB", "9223372036854775808", "1.GiB.", "+1"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

TEST(ByteSize, WritesTheLargestUnitThatFits) {
  EXPECT_EQ(format_byte_size(0), "0 B");
  EXPECT_EQ(format_byte_size(1023), "1023 B");
  EXPECT_EQ(format_byte_size(1024), "1.0 KiB");
  EXPECT_EQ(format_byte_size((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_byte_size(int64_t{20} << 30), "20.0 GiB");
  EXPECT_EQ(format_byte_size(std::numeric_limits<int64_t>::max()), "8388608.0 TiB");
}

}  // namespace
}  // namespace espalier
