#include "espalier/watch/terminal/screen_line.h"

#include <algorithm>
#include <array>

#include "espalier/core/text/utf8.h"

namespace espalier::watch {
namespace {

struct Range {
  char32_t first, last;
};

// Unicode's East_Asian_Width W and F, in blocks: a few code points that none assigned are among them.
constexpr std::array kWide = std::to_array<Range>(
    {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x23F0, 0x23F0},   {0x23F3, 0x23F3},
     {0x25FD, 0x25FE},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267F, 0x267F},   {0x2693, 0x2693},
     {0x26A1, 0x26A1},   {0x26AA, 0x26AB},   {0x26BD, 0x26BE},   {0x26C4, 0x26C5},   {0x26CE, 0x26CE},
     {0x26D4, 0x26D4},   {0x26EA, 0x26EA},   {0x26F2, 0x26F3},   {0x26F5, 0x26F5},   {0x26FA, 0x26FA},
     {0x26FD, 0x26FD},   {0x2705, 0x2705},   {0x270A, 0x270B},   {0x2728, 0x2728},   {0x274C, 0x274C},
     {0x274E, 0x274E},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},   {0x27B0, 0x27B0},
     {0x27BF, 0x27BF},   {0x2B1B, 0x2B1C},   {0x2B50, 0x2B50},   {0x2B55, 0x2B55},   {0x2E80, 0x303E},
     {0x3041, 0x4DBF},   {0x4E00, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
     {0xFE10, 0xFE19},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x16FE0, 0x18CFF},
     {0x1AFF0, 0x1B2FF}, {0x1F004, 0x1F004}, {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F18E}, {0x1F191, 0x1F19A},
     {0x1F200, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F7E0, 0x1F7F0}, {0x1F90C, 0x1F9FF}, {0x1FA70, 0x1FAFF},
     {0x20000, 0x3FFFD}});

// The combining marks of the usual scripts, and joiners.
constexpr std::array kNoWidth = std::to_array<Range>(
    {{0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A}, {0x064B, 0x065F},
     {0x093C, 0x093C}, {0x0941, 0x0948}, {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E},
     {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200D}, {0x2060, 0x2064}, {0x20D0, 0x20FF},
     {0x3099, 0x309A}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0xE0100, 0xE01EF}});

template <size_t kSize>
bool is_in(const std::array<Range, kSize>& ranges, char32_t point) {
  const auto after = std::ranges::upper_bound(ranges, point, {}, &Range::first);
  return after != ranges.begin() && point <= std::prev(after)->last;
}

// C0 and C1 controls, line separators, and what turns the direction of writing.
bool is_control(char32_t point) {
  return point < 0x20 || (point >= 0x7F && point < 0xA0) || (point >= 0x200E && point <= 0x200F) ||
         (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

struct Character {
  std::string_view bytes;  // to show
  size_t length = 1;       // in the text
  int columns = 1;
};

Character first_of(std::string_view text, Glyphs glyphs) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  size_t length = byte(0) < 0x80 ? 1 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
  length = std::min(length, text.size());
  if (!is_utf8(text.substr(0, length))) return {.bytes = "?"};
  char32_t point = length == 1 ? byte(0) : byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) point = (point << 6) | (byte(i) & 0x3Fu);
  if (is_control(point) || (glyphs == Glyphs::kAscii && length > 1)) return {.bytes = "?", .length = length};
  return {.bytes = text.substr(0, length),
          .length = length,
          .columns = is_in(kNoWidth, point) ? 0
                     : is_in(kWide, point)  ? 2
                                            : 1};
}

}  // namespace

int screen_columns(std::string_view text, Glyphs glyphs) {
  int columns = 0;
  while (!text.empty()) {
    const Character character = first_of(text, glyphs);
    columns += character.columns;
    text.remove_prefix(character.length);
  }
  return columns;
}

ScreenLine& ScreenLine::add(std::string_view text, std::optional<Color> color) {
  while (!text.empty() && !is_cut_) {
    const Character character = first_of(text, style_.glyphs);
    text.remove_prefix(character.length);
    is_full_ |= used_ + character.columns > columns_;
    if (!is_full_) {
      cells_.push_back({std::string(character.bytes), character.columns, color});
      used_ += character.columns;
    } else if (character.bytes != " ") {  // nobody misses a blank
      cut();
    }
  }
  return *this;
}

// The last character gives way to the mark.
void ScreenLine::cut() {
  is_cut_ = true;
  if (columns_ < 1) return;
  while (used_ > columns_ - 1) {
    used_ -= cells_.back().columns;
    cells_.pop_back();
  }
  cells_.push_back({style_.glyphs == Glyphs::kUtf8 ? "\xe2\x80\xa6" : ">", 1, Color::kDim});
  used_ += 1;
}

std::string ScreenLine::text() const {
  std::string text;
  for (size_t i = 0; i < cells_.size();) {
    const std::optional<Color> color = cells_[i].color;
    std::string same;
    for (; i < cells_.size() && cells_[i].color == color; ++i) same += cells_[i].bytes;
    text += color ? painted(same, *color, style_.is_colored) : same;
  }
  return text;
}

ScreenLine& ScreenLine::pad_to(int column) {
  return column > used_ ? add(std::string(static_cast<size_t>(column - used_), ' ')) : *this;
}

ScreenLine& ScreenLine::add_right(std::string_view text, int width, std::optional<Color> color) {
  pad_to(used_ + width - screen_columns(text, style_.glyphs));
  return add(text, color);
}

}  // namespace espalier::watch
