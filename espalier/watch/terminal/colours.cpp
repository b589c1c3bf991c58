#include "espalier/watch/terminal/colours.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "espalier/core/error.h"
#include "espalier/core/text/nearest.h"

namespace espalier::watch {
namespace {

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view(value);
}

}  // namespace

ColorChoice parse_color_choice(std::string_view text) {
  if (text == "auto") return ColorChoice::kAuto;
  if (text == "always") return ColorChoice::kAlways;
  if (text == "never") return ColorChoice::kNever;
  fail_usage("--color: want one of auto, always, never, got {}{}", text,
             suggestion(text, {"auto", "always", "never"}));
}

bool uses_color(ColorChoice choice, int descriptor) {
  if (choice != ColorChoice::kAuto) return choice == ColorChoice::kAlways;
  return environment("NO_COLOR").empty() && is_interactive(descriptor);
}

bool is_interactive(int descriptor) {
  return isatty(descriptor) == 1 && environment("TERM") != "dumb";
}

bool locale_is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(environment(name));
    if (value.empty()) continue;
    std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != value.npos || value.find("utf8") != value.npos;
  }
  return false;
}

int columns(int descriptor) {
  constexpr int kUsual = 80;
  constexpr int kLeast = 20;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::max<int>(size.ws_col, kLeast);
  }
  int wanted = kUsual;
  const std::string_view text = environment("COLUMNS");
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), wanted);
  return error == std::errc{} ? std::clamp(wanted, kLeast, 1000) : kUsual;
}

size_t display_columns(std::string_view text) {
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string painted(std::string_view text, Color color, bool is_colored) {
  if (!is_colored) return std::string(text);
  constexpr std::string_view kCodes[] = {"31", "32", "33", "34", "35", "36", "1", "2"};
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<size_t>(color)], text);
}

}  // namespace espalier::watch
