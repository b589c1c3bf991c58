// Text in the columns of a terminal: cut where it ends, coloured, and with nothing in it that could move the
// cursor.
//
// Kept true: a line is never wider than its columns, whatever is added: a wide character that does not fit
// is left out, and so is all that follows; a line that was cut ends with a mark that says so. Control
// characters, bytes that are not UTF-8, and on a terminal without UTF-8 all that is not ASCII, show as '?'.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/watch/terminal/colours.h"

namespace espalier::watch {

enum class Glyphs : uint8_t { kUtf8, kAscii };

struct ScreenStyle {
  Glyphs glyphs = Glyphs::kAscii;
  bool is_colored = false;
};

// Columns that the text takes, after what cannot be shown became '?'. Wide characters (of East Asia, emoji)
// take two, combining marks none.
int screen_columns(std::string_view text, Glyphs glyphs);

class ScreenLine {
 public:
  ScreenLine(int columns, ScreenStyle style) : columns_(columns), style_(style) {}

  ScreenLine& add(std::string_view text, std::optional<Color> color = {});
  // Spaces up to a column, none where the line is past it.
  ScreenLine& pad_to(int column);
  // The text at the right end of a field of so many columns.
  ScreenLine& add_right(std::string_view text, int width, std::optional<Color> color = {});

  int used() const { return used_; }
  int left() const { return is_full_ ? 0 : columns_ - used_; }
  std::string text() const;

 private:
  struct Cell {
    std::string bytes;
    int columns = 1;
    std::optional<Color> color;
  };

  void cut();

  int columns_;
  ScreenStyle style_;
  std::vector<Cell> cells_;  // a character each
  int used_ = 0;
  bool is_full_ = false;  // something did not fit
  bool is_cut_ = false;   // and it was no blank
};

}  // namespace espalier::watch
