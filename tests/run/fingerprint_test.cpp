#include "espalier/run/fingerprint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::run {
namespace {

using Json = nlohmann::ordered_json;

void check(const Json& before, const Json& now, const std::vector<std::string>& allowed = {},
           const Json& noted = Json::object()) {
  const Json config{{"epochs", 3}, {"report-minutes", 5}};
  check_fingerprint(
      {.run = "runs/x", .before = before, .now = now, .config = config, .noted = noted, .allowed = allowed});
}

const Json kBefore{{"job", "host"}, {"config", {{"epochs", 3}, {"lanes", 4}, {"old", 1}}}, {"threads", 2}};
const Json kNow{{"job", "host"}, {"config", {{"epochs", 5}, {"lanes", 4}, {"new", true}}}, {"threads", 1}};

TEST(Fingerprint, PassesWhatIsTheSame) {
  EXPECT_NO_THROW(check(kBefore, kBefore));
}

TEST(Fingerprint, NamesEveryDifferenceWithBothValuesAndHowToAllowIt) {
  EXPECT_ERROR(check(kBefore, kNow), UsageError, "run directory 'runs/x' holds another run",
               "epochs was 3, now 5; new was nothing, now true; old was 1, now nothing; threads was 2, now 1",
               "--allow-change epochs,new,old,threads");
}

TEST(Fingerprint, PassesWhatIsAllowedAndNamesTheRest) {
  EXPECT_NO_THROW(check(kBefore, kNow, {"epochs", "new", "old", "threads"}));
  EXPECT_ERROR(check(kBefore, kNow, {"epochs", "new", "old"}), UsageError,
               "another run: threads was 2, now 1;");
}

TEST(Fingerprint, PassesAnEarlierChangeToTheSameValueAlone) {
  const Json noted = noted_changes(
      {{{"changed", {{"epochs", {{"was", 3}, {"now", 4}}}, {"threads", {{"was", 2}, {"now", 1}}}}}},
       "damaged",
       {{"changed", {{"epochs", {{"was", 4}, {"now", 5}}}}}}});
  EXPECT_EQ(noted, Json({{"epochs", 5}, {"threads", 1}}));
  EXPECT_ERROR(check(kBefore, kNow, {"new"}, noted), UsageError, "another run: old was 1, now nothing;");
  Json other = kNow;
  other["config"]["epochs"] = 6;
  EXPECT_ERROR(check(kBefore, other, {"new", "old"}, noted), UsageError, "epochs was 3, now 6");
}

TEST(Fingerprint, RefusesAnAllowedKeyThatNeitherHas) {
  EXPECT_ERROR(check(kBefore, kBefore, {"epohcs"}), UsageError, "--allow-change 'epohcs'",
               "did you mean epochs?");
  EXPECT_NO_THROW(check(kBefore, kBefore, {"report-minutes"}));  // of the job, though no run is made of it
}

}  // namespace
}  // namespace espalier::run
