#include "espalier/watch/terminal/table.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"

namespace espalier::watch {
namespace {

TEST(Table, AlignsWordsLeftAndNumbersRight) {
  Table table({"name", ">count"});
  table.add_row({"cat", "5"});
  table.add_row({"ostrich", "12345"});
  EXPECT_EQ(table.text(),
            "name     count\n"
            "cat          5\n"
            "ostrich  12345\n");
}

TEST(Table, CountsCharactersNotBytesAndLeavesNoSpaceAtTheEnd) {
  Table table({"a", "b"});
  table.add_row({"\xC3\xA9\xC3\xA9", "x"});
  table.add_row({"y", ""});
  EXPECT_EQ(table.text(1), " a   b\n \xC3\xA9\xC3\xA9  x\n y\n");
}

TEST(Table, RefusesARowOfAnotherLength) {
  EXPECT_THROW(Table({"a"}).add_row({}), Error);
}

}  // namespace
}  // namespace espalier::watch
