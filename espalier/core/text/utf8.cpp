#include "espalier/core/text/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace espalier {
namespace {

// Long enough for the names of tensors and classes, short enough for one line.
constexpr size_t kMaxQuoted = 120;

}  // namespace

size_t first_bad_utf8(std::string_view text) {
  // Past the end reads as 0, which no trailing byte may be.
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  size_t i = 0;
  while (i < text.size()) {
    const uint8_t lead = at(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    size_t num_trailing = 0;
    if (lead >= 0xC2 && lead <= 0xDF) num_trailing = 1;
    if (lead >= 0xE0 && lead <= 0xEF) num_trailing = 2;
    if (lead >= 0xF0 && lead <= 0xF4) num_trailing = 3;
    if (num_trailing == 0) return i;
    // Only the second byte has a narrower range, after these four leads.
    const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (at(i + 1) < low || at(i + 1) > high) return i;
    for (size_t k = 2; k <= num_trailing; ++k) {
      if (at(i + k) < 0x80 || at(i + k) > 0xBF) return i;
    }
    i += num_trailing + 1;
  }
  return i;
}

std::string on_one_line(std::string_view text) {
  size_t end = std::min(text.size(), kMaxQuoted);
  // A trailing byte: the character began before it.
  while (end < text.size() && end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  std::string result(text.substr(0, end));
  for (char& c : result) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (end < text.size()) result += "...";
  return result;
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text.substr(0, kMaxQuoted)) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte >= 0x7F) {
      fmt::format_to(std::back_inserter(result), "\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  result += text.size() > kMaxQuoted ? "...\"" : "\"";
  return result;
}

}  // namespace espalier
