#include "espalier/core/text/utf8.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(Utf8, FindsTheFirstByteThatIsNoCharacter) {
  EXPECT_EQ(first_bad_utf8("\xE2\x82\xAC\xF4\x8F\xBF\xBF"), 7u);
  for (const std::string_view bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80"}) {
    EXPECT_EQ(first_bad_utf8("ab" + std::string(bad)), 2u);
  }
}

TEST(Utf8, ShowsAValueOnOneLineAndCutsItBetweenCharacters) {
  EXPECT_EQ(on_one_line(""), "");
  EXPECT_EQ(on_one_line("caf\xC3\xA9 a\tb\n\x7F"), "caf\xC3\xA9 a?b??");
  EXPECT_EQ(on_one_line(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(on_one_line(std::string(121, 'x')), std::string(120, 'x') + "...");
  EXPECT_EQ(on_one_line(std::string(118, 'x') + "\xE2\x82\xAC!"), std::string(118, 'x') + "...");
}

TEST(Utf8, QuotesANameInPrintableAscii) {
  EXPECT_EQ(in_quotes("a\"\\\n\xC3"), R"("a\"\\\x0a\xc3")");
  EXPECT_EQ(in_quotes(std::string(121, 'x')), "\"" + std::string(120, 'x') + "...\"");
}

}  // namespace
}  // namespace espalier
