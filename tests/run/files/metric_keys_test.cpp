#include "espalier/run/files/metric_keys.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace espalier::run {
namespace {

using nlohmann::ordered_json;

TEST(KindOfLine, IsWhatItsNameSays) {
  for (int number = 0; number <= static_cast<int>(LineKind::kEvaluatedLane); ++number) {
    const auto kind = static_cast<LineKind>(number);
    ordered_json line{{"kind", name_of(kind)}};
    if (kind == LineKind::kEpochOfMany) line["lanes"] = 2;
    const bool is_inside =
        kind == LineKind::kSlot || kind == LineKind::kEpochStream || kind == LineKind::kResultStream;
    EXPECT_EQ(kind_of_line(line), is_inside ? std::nullopt : std::optional(kind)) << line;
    EXPECT_EQ(kind_of_line(nlohmann::json(line)), kind_of_line(line)) << line;
  }
}

TEST(KindOfLine, IsNoneForWhatIsNoLineOfOurs) {
  for (const char* text :
       {"null", "[]", "7", "{}", R"({"kind":3})", R"({"kind":""})", R"({"kind":"weather"})"}) {
    EXPECT_EQ(kind_of_line(ordered_json::parse(text)), std::nullopt) << text;
    EXPECT_EQ(kind_of_line(nlohmann::json::parse(text)), std::nullopt) << text;
  }
}

TEST(UnlistedIn, FindsAKindOrKeyThatNoReaderKnows) {
  const auto unlisted = [](const char* text) { return unlisted_in(ordered_json::parse(text)); };
  EXPECT_EQ(unlisted(R"({"kind":"lane","epoch":1,"reward_end":1,"slots":[{"slot":"r0c0"}]})"), std::nullopt);
  EXPECT_EQ(unlisted(R"({"kind":"epoch","epoch":1,"streams":{"rgb":{"share":1}}})"), std::nullopt);
  EXPECT_EQ(unlisted(R"({"kind":"result","streams":{"rgb":{"accuracy_alone":1}}})"), std::nullopt);
  EXPECT_EQ(unlisted(R"({"kind":"lane","colour":1})"), "the key 'colour'");
  EXPECT_EQ(unlisted(R"({"kind":"lane","slots":[{"slot":"r0c0"},{"colour":1}]})"), "the key 'colour'");
  EXPECT_EQ(unlisted(R"({"kind":"epoch","streams":{"rgb":{"accuracy_alone":1}}})"),
            "the key 'accuracy_alone'");
  EXPECT_EQ(unlisted(R"({"kind":"weather"})"), "a line of an unknown kind");
}

}  // namespace
}  // namespace espalier::run
