#include "espalier/core/list_text.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

using Parts = std::vector<std::string>;

TEST(ListText, SplitsAtCommasAndKeepsEmptyParts) {
  EXPECT_EQ(split_list("cpu"), Parts{"cpu"});
  EXPECT_EQ(split_list("cuda:0,cuda:1"), (Parts{"cuda:0", "cuda:1"}));
  EXPECT_EQ(split_list(""), Parts{""});
  EXPECT_EQ(split_list("a,,b,"), (Parts{"a", "", "b", ""}));
}

}  // namespace
}  // namespace espalier
