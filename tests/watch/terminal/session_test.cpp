// Keys; the session itself needs a terminal: tests/cli/tui_test.py.
#include "espalier/watch/terminal/session.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace espalier::watch {
namespace {

TEST(KeyReader, KnowsTheKeysOfBothModesOfATerminal) {
  KeyReader reader;
  EXPECT_EQ(
      reader.read("\033[A\033OB\033[5~\033[6~\033[H\033[4~q"),
      (std::vector{Key::kUp, Key::kDown, Key::kPageUp, Key::kPageDown, Key::kHome, Key::kEnd, Key::kQuit}));
}

TEST(KeyReader, PutsSequencesTogetherThatComeInPieces) {
  KeyReader reader;
  EXPECT_TRUE(reader.read("\033").empty());
  EXPECT_TRUE(reader.read("[").empty());
  EXPECT_EQ(reader.read("B"), std::vector{Key::kDown});
}

TEST(KeyReader, PassesOverWhatItDoesNotKnow) {
  KeyReader reader;
  EXPECT_EQ(reader.read("x\033[1;5C\033[200~\033Z\xff\033\033[Ak"), (std::vector{Key::kUp, Key::kUp}));
  EXPECT_TRUE(reader.read("\033[" + std::string(1000, '1')).empty());
  EXPECT_EQ(reader.read("q"), std::vector{Key::kQuit});
}

TEST(KeyReader, TakesNoLetterOfASequenceForAKey) {
  KeyReader reader;
  EXPECT_TRUE(reader.read("\033[1q").empty());
}

}  // namespace
}  // namespace espalier::watch
