#include "espalier/core/machine/program.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(ShellLine, IsReadBackTheSameByAShell) {
  const char* const words[] = {"espalier", "train", "--data", "folder:/my photos", "", "it's", "a=b,c"};
  EXPECT_EQ(shell_line(7, words), "espalier train --data 'folder:/my photos' '' 'it'\\''s' a=b,c");
  EXPECT_EQ(shell_line(0, nullptr), "");
}

TEST(ProgramFacts, AreWhatMainSaid) {
  set_program_facts({"1.2", "abc", "espalier doctor"});
  EXPECT_EQ(program_facts().commit, "abc");
  set_program_facts({});
}

}  // namespace
}  // namespace espalier
