#include "espalier/core/files/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace espalier {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Crc32c, IsWhatTheStandardSays) {
  // RFC 3720, B.4, and the check value of the catalogue of CRCs.
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
}

TEST(Crc32c, OfPiecesIsThatOfTheWhole) {
  const std::string_view text = "a stream may be summed piece by piece, wherever it is cut";
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(bytes_of(text.substr(cut)), crc32c(bytes_of(text.substr(0, cut)))),
              crc32c(bytes_of(text)))
        << "cut at " << cut;
}

}  // namespace
}  // namespace espalier
