#include "espalier/core/text/json_fields.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonFields, GiveWhatIsThereOrTheDefault) {
  const Json object = Json::parse(R"({"t":"text","i":-3,"u":7,"d":1.5,"o":{"x":1}})");
  EXPECT_EQ(text_field(object, "t", "none", "w"), "text");
  EXPECT_EQ(text_field(object, "missing", "none", "w"), "none");
  EXPECT_EQ(integer_field(object, "i", 0, "w"), -3);
  EXPECT_EQ(integer_field(object, "missing", 5, "w"), 5);
  EXPECT_EQ(number_field(object, "d", 0, "w"), 1.5);
  EXPECT_EQ(number_field(object, "u", 0, "w"), 7);
  EXPECT_EQ(object_field(object, "o", "w"), Json({{"x", 1}}));
  EXPECT_EQ(object_field(object, "missing", "w"), Json::object());
}

TEST(JsonFields, RefuseAnotherKindNamingPlaceAndKey) {
  const Json object =
      Json::parse(R"({"s":"7","n":null,"a":[1],"d":1.5,"u":18446744073709551615,"big":1e300})");
  for (const char* key : {"s", "n", "a", "d", "u", "big"})
    EXPECT_ERROR(integer_field(object, key, 0, "file 'x'"), Error, "file 'x'", fmt::format("'{}'", key),
                 "a whole number");
  EXPECT_ERROR(number_field(object, "s", 0, "file 'x'"), Error, "file 'x'", "'s'", "a number", "string");
  EXPECT_ERROR(text_field(object, "d", "", "file 'x'"), Error, "file 'x'", "'d'", "text", "number");
  EXPECT_ERROR(object_field(object, "a", "file 'x'"), Error, "file 'x'", "'a'", "an object", "array");
  EXPECT_ERROR(integer_field(Json(3), "k", 0, "file 'x'"), Error, "file 'x'", "an object with 'k'", "number");
}

TEST(JsonFields, TakeWholeNumbersThatFitAlone) {
  EXPECT_EQ(whole_number<int32_t>(Json(2147483647)), 2147483647);
  EXPECT_EQ(whole_number<int32_t>(Json(2147483648)), std::nullopt);
  EXPECT_EQ(whole_number<uint8_t>(Json(255)), 255);
  EXPECT_EQ(whole_number<uint8_t>(Json(-1)), std::nullopt);
  EXPECT_EQ(whole_number<uint64_t>(Json(18446744073709551615u)), 18446744073709551615u);
  EXPECT_EQ(whole_number<int64_t>(Json(1.0)), std::nullopt);
  EXPECT_EQ(whole_number<int64_t>(Json("1")), std::nullopt);
}

}  // namespace
}  // namespace espalier
