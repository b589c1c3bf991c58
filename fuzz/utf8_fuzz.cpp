// first_bad_utf8() agrees with a decoder that works the other way round (decode, then ask whether the code
// point is allowed and could have been shorter); in_quotes() gives one printable line of bounded length.
#include "espalier/core/text/utf8.h"

#include <array>

#include "fuzz/target.h"

namespace {

size_t first_bad_by_decoding(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80       ? 1
                          : lead >> 5 == 6  ? 2
                          : lead >> 4 == 14 ? 3
                          : lead >> 3 == 30 ? 4
                                            : 0;
    if (length == 0 || length > text.size() - i) return i;
    uint32_t point = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next >> 6 != 2) return i;
      point = point << 6 | (next & 0x3fu);
    }
    constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kLeast[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return i;
    i += length;
  }
  return i;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace espalier;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::require(first_bad_utf8(text) == first_bad_by_decoding(text), "two decoders agree");
  const std::string quoted = in_quotes(text);
  fuzz::require(quoted.size() >= 2 && quoted.size() <= 500, "a quoted name is short");
  for (const char c : quoted) fuzz::require(c >= 0x20 && c <= 0x7e, "a quoted name is printable ASCII");
  return 0;
}
