#include "espalier/lanes/conv/choice.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

TEST(ConvChoices, AreReadFromARunsFile) {
  EXPECT_EQ(parse_conv_choices("{}", "f"), ConvChoices());
  EXPECT_EQ(parse_conv_choices("{\"forward 1\": \"cudnn 3\",\n \"weight 2\": \"cudnn 12 narrow\"}", "f"),
            (ConvChoices{{"forward 1", "cudnn 3"}, {"weight 2", "cudnn 12 narrow"}}));
  for (const char* way : {"lanes", "products", "folded", "cudnn 0"}) EXPECT_TRUE(is_conv_way(way)) << way;
}

TEST(ConvChoices, AreRefusedInOneSentenceThatNamesTheFile) {
  for (const char* text : {"", "x", "[]", "null", "{", "{\"a\":1}", "{\"a\":{\"b\":\"lanes\"}}",
                           "{\"a\":[\"lanes\"]}", "{\"a\":1e999}", "{\"a\":\"\xff\"}"})
    EXPECT_ERROR(parse_conv_choices(text, "file 'c.json'"), UsageError, "file 'c.json'",
                 "an object of strings");
  EXPECT_ERROR(parse_conv_choices(std::string(100000, '['), "f"), UsageError, "an object of strings");
  for (const char* way : {"", "fast", "cudnn", "cudnn ", "cudnn x", "cudnn -1", "cudnn 1 wide", "cudnn  1",
                          "cudnn 9999999999", "lanes "})
    EXPECT_ERROR(parse_conv_choices(fmt::format("{{\"forward\":\"{}\"}}", way), "file 'c.json'"), UsageError,
                 "file 'c.json'", "\"forward\"", fmt::format("\"{}\"", way), "cudnn and a number");
}

}  // namespace
}  // namespace espalier::lanes
