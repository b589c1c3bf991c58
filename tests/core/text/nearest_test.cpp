#include "espalier/core/text/nearest.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(Nearest, CountsEditsAndSwapsOfNeighbours) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("batch", "batch"), 0);
  EXPECT_EQ(edit_distance("bacth", "batch"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3);
}

TEST(Nearest, FindsTheNearestAndTheFirstOfEquals) {
  EXPECT_EQ(nearest_name("epohcs", {"batch", "epochs", "seed"}), "epochs");
  EXPECT_EQ(nearest_name("ab", {"ax", "ay"}), "ax");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(Nearest, PrefersANameThatTheTypedOneBegins) {
  EXPECT_EQ(nearest_name("batch", {"watches", "batch-per-env"}), "batch-per-env");
  EXPECT_EQ(nearest_name("seed", {"sea", "data-seed"}), "data-seed");
}

TEST(Nearest, AsksWhenNearAndSaysNothingWhenFar) {
  EXPECT_EQ(suggestion("bacth", {"batch"}, "--"), "; did you mean --batch?");
  EXPECT_EQ(suggestion("lerning-rat", {"learning-rate"}, "--"), "; did you mean --learning-rate?");
  EXPECT_EQ(suggestion("zzzzzz", {"batch"}), "");
  EXPECT_EQ(suggestion("lr", {"help", "data"}, "--"), "");
  EXPECT_EQ(suggestion("optimizer", {"controller"}, "--"), "");
  EXPECT_EQ(suggestion("help", {"data", "train", "plan"}), "");
  EXPECT_EQ(suggestion("port", {"host"}, "--"), "") << "two letters of four are another word";
  EXPECT_EQ(suggestion("zzzzzz", {}), "");
}

// Found by fuzzing: a file's text as the name of an option took seconds.
TEST(Nearest, ComparesNoMoreThanANameCanHave) {
  const std::string start(64, 'x');
  EXPECT_EQ(suggestion(start + std::string(1 << 20, 'a'), {start}), "; did you mean " + start + "?");
}

}  // namespace
}  // namespace espalier
