#include "espalier/watch/terminal/colours.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "espalier/core/error.h"

namespace espalier::watch {
namespace {

class Terminal : public ::testing::Test {
 protected:
  // The near end of a pseudo-terminal; -1 where the machine has none.
  Terminal() : controller_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (controller_ >= 0 && grantpt(controller_) == 0 && unlockpt(controller_) == 0) {
      terminal_ = open(ptsname(controller_), O_RDWR | O_NOCTTY);
    }
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
  }
  ~Terminal() override {
    if (terminal_ >= 0) close(terminal_);
    if (controller_ >= 0) close(controller_);
    unsetenv("NO_COLOR");
  }
  void SetUp() override {
    if (terminal_ < 0) GTEST_SKIP() << "no pseudo-terminal";
  }
  int controller_;
  int terminal_ = -1;
};

TEST_F(Terminal, GetsColourByItself) {
  EXPECT_TRUE(uses_color(ColorChoice::kAuto, terminal_));
  EXPECT_FALSE(uses_color(ColorChoice::kNever, terminal_));
}

TEST_F(Terminal, GetsNoneWithNoColor) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(uses_color(ColorChoice::kAuto, terminal_));
  EXPECT_TRUE(is_interactive(terminal_)) << "a bar needs no colour";
}

TEST_F(Terminal, TakesAnEmptyNoColorForUnset) {
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(uses_color(ColorChoice::kAuto, terminal_));
}

TEST_F(Terminal, ObeysAnExplicitChoiceBeforeNoColor) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(uses_color(ColorChoice::kAlways, terminal_));
}

TEST_F(Terminal, ThatIsDumbGetsPlainLines) {
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(is_interactive(terminal_));
  EXPECT_FALSE(uses_color(ColorChoice::kAuto, terminal_));
}

TEST_F(Terminal, IsNotAFile) {
  const int file = open("/dev/null", O_WRONLY);
  EXPECT_FALSE(is_interactive(file));
  EXPECT_FALSE(uses_color(ColorChoice::kAuto, file));
  EXPECT_TRUE(uses_color(ColorChoice::kAlways, file));
  setenv("COLUMNS", "123", 1);
  EXPECT_EQ(columns(file), 123);
  setenv("COLUMNS", "x", 1);
  EXPECT_EQ(columns(file), 80);
  unsetenv("COLUMNS");
  close(file);
}

TEST(ColorChoice, RefusesAnotherWord) {
  EXPECT_EQ(parse_color_choice("never"), ColorChoice::kNever);
  EXPECT_THROW(parse_color_choice("no"), UsageError);
}

TEST(Locale, IsUtf8AsTheFirstVariableSaysThatIsSet) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) unsetenv(name);
  EXPECT_FALSE(locale_is_utf8());
  setenv("LANG", "de_DE.UTF-8", 1);
  EXPECT_TRUE(locale_is_utf8());
  setenv("LC_CTYPE", "C", 1);
  EXPECT_FALSE(locale_is_utf8());
  setenv("LC_ALL", "C.utf8", 1);
  EXPECT_TRUE(locale_is_utf8());
  setenv("LC_ALL", "", 1);
  EXPECT_FALSE(locale_is_utf8());
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) unsetenv(name);
}

}  // namespace
}  // namespace espalier::watch
