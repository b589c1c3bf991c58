#include "espalier/core/text/list.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier {
namespace {

using Parts = std::vector<std::string>;

TEST(ListText, SplitsAtCommasAndKeepsEmptyParts) {
  EXPECT_EQ(split_list("cpu"), Parts{"cpu"});
  EXPECT_EQ(split_list("cuda:0,cuda:1"), (Parts{"cuda:0", "cuda:1"}));
  EXPECT_EQ(split_list(""), Parts{""});
  EXPECT_EQ(split_list("a,,b,"), (Parts{"a", "", "b", ""}));
}

TEST(ListText, TakesEveryNameOnceAndNoEmptyOne) {
  EXPECT_EQ(split_names("--streams", "rgb"), Parts{"rgb"});
  EXPECT_EQ(split_names("--streams", "rgb,depth"), (Parts{"rgb", "depth"}));
  EXPECT_ERROR(split_names("--streams", "rgb,depth,rgb"), UsageError, "--streams 'rgb,depth,rgb'",
               "'rgb' twice");
  for (const char* list : {"", ",", "rgb,", ",rgb", "rgb,,depth"})
    EXPECT_ERROR(split_names("--streams", list), UsageError, "--streams", "empty name");
}

}  // namespace
}  // namespace espalier
