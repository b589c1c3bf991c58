#include "espalier/watch/terminal/screen_line.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier::watch {
namespace {

constexpr ScreenStyle kPlain{.glyphs = Glyphs::kUtf8};
constexpr ScreenStyle kAscii{.glyphs = Glyphs::kAscii};
constexpr ScreenStyle kColored{.glyphs = Glyphs::kUtf8, .is_colored = true};

std::string cut(std::string_view text, int columns, ScreenStyle style = kPlain) {
  return ScreenLine(columns, style).add(text).text();
}

TEST(ScreenLine, CutsAtItsColumnsAndSaysSo) {
  EXPECT_EQ(cut("abcdef", 0), "");
  EXPECT_EQ(cut("abcdef", 5), "abcd\u2026");
  EXPECT_EQ(cut("abcdef", 5, kAscii), "abcd>");
  EXPECT_EQ(cut("abcdef", 6), "abcdef");
  EXPECT_EQ(cut("\u00fc\u2588x", 2), "\u00fc\u2026");
  EXPECT_EQ(cut("abc   ", 3), "abc") << "nobody misses a blank";
  EXPECT_EQ(ScreenLine(3, kPlain).add("abc ").add("d").text(), "ab\u2026");
}

TEST(ScreenLine, LeavesOutAWideCharacterThatDoesNotFitAndAllThatFollows) {
  EXPECT_EQ(cut("\u4e2d\u6587", 4), "\u4e2d\u6587");
  EXPECT_EQ(cut("\u4e2d\u6587", 3), "\u4e2d\u2026");
  ScreenLine line(3, kPlain);
  line.add("\u4e2d\u6587").add("x");
  EXPECT_EQ(line.text(), "\u4e2d\u2026");
  EXPECT_EQ(line.left(), 0);
  EXPECT_EQ(cut("\U0001F600", 1), "\u2026");
}

TEST(ScreenLine, GivesCombiningMarksNoColumn) {
  EXPECT_EQ(screen_columns("e\u0301", Glyphs::kUtf8), 1);
  EXPECT_EQ(cut("e\u0301", 1), "e\u0301");
  EXPECT_EQ(cut("e\u0301x", 1), "\u2026");
}

TEST(ScreenLine, ShowsNothingThatMovesTheCursor) {
  EXPECT_EQ(cut("a\033[2Jb\r\n\x7f", 80), "a?[2Jb???");
  EXPECT_EQ(cut("\u009b2J\u202e", 80), "?2J?");  // a control sequence in one code point; right to left
  EXPECT_EQ(cut("\xff\xc3", 80), "??");          // not UTF-8, and cut off
  EXPECT_EQ(cut("\xe4\xb8", 80), "??");
  EXPECT_EQ(cut(std::string_view("\0", 1), 80), "?");
}

TEST(ScreenLine, IsAsciiWhereTheTerminalIs) {
  EXPECT_EQ(cut("\u00fc\u4e2dx", 80, kAscii), "??x");
  EXPECT_EQ(screen_columns("\u00fc\u4e2dx", Glyphs::kAscii), 3);
}

TEST(ScreenLine, CountsNoColumnForColours) {
  ScreenLine line(4, kColored);
  line.add("ab", Color::kRed).add("cdef", Color::kGreen).add("g", Color::kRed);
  EXPECT_EQ(line.text(), "\033[31mab\033[0m\033[32mc\033[0m\033[2m\u2026\033[0m");
  EXPECT_EQ(line.used(), 4);
}

TEST(ScreenLine, PadsAndAlignsToTheRight) {
  EXPECT_EQ(ScreenLine(20, kPlain).add("a").pad_to(3).add("b").pad_to(2).add("c").text(), "a  bc");
  EXPECT_EQ(ScreenLine(20, kPlain).add_right("\u4e2d", 4).add_right("longer", 4).text(), "  \u4e2dlonger");
}

}  // namespace
}  // namespace espalier::watch
