// What a stream may be given: colours, a line that is drawn over, and how wide it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::watch {

enum class ColorChoice : uint8_t { kAuto, kAlways, kNever };

// "auto", "always" or "never"; fails with UsageError otherwise.
ColorChoice parse_color_choice(std::string_view text);

// An explicit choice wins; then NO_COLOR (non-empty) says no; then a terminal that is not "dumb" says yes.
bool uses_color(ColorChoice choice, int descriptor);

// A line may be drawn over: a terminal, and not a "dumb" one.
bool is_interactive(int descriptor);

// Whether text there may be UTF-8: as the first of LC_ALL, LC_CTYPE and LANG that is set says.
bool locale_is_utf8();

// Columns of the terminal, or of COLUMNS, or 80; at least 20.
int columns(int descriptor);

// Columns that a text takes, one a code point: good enough for names of files and classes.
size_t display_columns(std::string_view text);

enum class Color : uint8_t { kRed, kGreen, kYellow, kBlue, kMagenta, kCyan, kBold, kDim };

// The text in a colour, or as it is.
std::string painted(std::string_view text, Color color, bool is_colored);

}  // namespace espalier::watch
