#include "espalier/core/text/byte_size.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace espalier {
namespace {

struct Unit {
  std::string_view name;  // in lower case
  int64_t size_bytes;
};

constexpr int64_t kKibi = 1024;
constexpr std::array<Unit, 14> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"k", kKibi},
                                          {"kib", kKibi},
                                          {"kb", 1000},
                                          {"m", kKibi* kKibi},
                                          {"mib", kKibi* kKibi},
                                          {"mb", 1'000'000},
                                          {"g", kKibi* kKibi* kKibi},
                                          {"gib", kKibi* kKibi* kKibi},
                                          {"gb", 1'000'000'000},
                                          {"t", kKibi* kKibi* kKibi* kKibi},
                                          {"tib", kKibi* kKibi* kKibi* kKibi},
                                          {"tb", 1'000'000'000'000}}};

}  // namespace

std::optional<int64_t> parse_byte_size(std::string_view text) {
  if (text.starts_with('-')) return std::nullopt;
  const char* const end = text.data() + text.size();
  long double number = 0;
  // A whole number is read as one, so that every count of bytes up to 2^63 - 1 is exact.
  int64_t whole = 0;
  auto [rest, error] = std::from_chars(text.data(), end, whole);
  if (error == std::errc{} && (rest == end || (*rest != '.' && *rest != 'e'))) {
    number = static_cast<long double>(whole);
  } else {
    double fraction = 0;
    const auto parsed = std::from_chars(text.data(), end, fraction, std::chars_format::fixed);
    if (parsed.ec != std::errc{} || !std::isfinite(fraction)) return std::nullopt;
    number = static_cast<long double>(fraction);
    rest = parsed.ptr;
  }

  std::string unit;
  for (; rest != end; ++rest) {
    const auto c = static_cast<unsigned char>(*rest);
    if (std::isspace(c) != 0 && unit.empty()) continue;
    unit.push_back(static_cast<char>(std::tolower(c)));
  }
  for (const Unit& known : kUnits) {
    if (known.name != unit) continue;
    const long double size = std::floor(number * static_cast<long double>(known.size_bytes));
    if (size >= 0x1p63L) return std::nullopt;
    return static_cast<int64_t>(size);
  }
  return std::nullopt;
}

std::string format_byte_size(int64_t size_bytes) {
  constexpr std::array<std::string_view, 4> kNames = {"KiB", "MiB", "GiB", "TiB"};
  // 1023.95 would print as "1024.0": the next unit says it better.
  constexpr double kNext = 1023.95;
  auto size = static_cast<double>(size_bytes);
  if (std::abs(size) < 1024) return fmt::format("{} B", size_bytes);
  size_t unit = 0;
  for (size /= 1024; std::abs(size) >= kNext && unit + 1 < kNames.size(); size /= 1024) ++unit;
  return fmt::format("{:.1f} {}", size, kNames[unit]);
}

}  // namespace espalier
