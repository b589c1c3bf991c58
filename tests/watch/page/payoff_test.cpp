#include "espalier/watch/page/payoff.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "espalier/watch/lines/reader.h"
#include "tests/watch/page/plain_sentence.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFossil =
    R"([{"slot":"r0c1","stage":"FOSSILIZED","blueprint":"norm","contribution_points":2.5}])";

void add_lane(RunRecord& run, int64_t lane, double accuracy, const std::string& slots = "[]") {
  add_line(
      run,
      fmt::format(
          R"({{"kind":"lane","epoch":1,"lane":{},"validation_accuracy":{},"parameters":20000,"slots":{}}})",
          lane, accuracy, slots));
}

std::string sentence(const RunRecord& run) {
  return plain_sentence(payoff_of(run)["sentence"]);
}

TEST(Payoff, SaysThatGrowingPaidWhereTheIntervalLeavesOutZero) {
  RunRecord run;
  for (const double accuracy : {0.80, 0.82, 0.84}) add_lane(run, std::ssize(run.lanes), accuracy, kFossil);
  for (const double accuracy : {0.50, 0.52, 0.54}) add_lane(run, std::ssize(run.lanes), accuracy);
  // Both deviations are 0.02: t of four degrees (2.776, here by its approximation) times 0.02 sqrt(2 / 3).
  EXPECT_EQ(sentence(run),
            "Lanes that kept seeds: 82.0 % validation accuracy with 20.0 thousand parameters on average (3 "
            "lanes); lanes that kept none: 52.0 % validation accuracy with 20.0 thousand parameters on "
            "average (3 lanes). The difference is +30.0 points, 95 % interval +25.5 to +34.5: growing paid "
            "in this run.");
  const ordered_json data = payoff_of(run);
  EXPECT_NEAR(data["difference"][0], 0.3, 1e-6);
  EXPECT_NEAR(data["difference"][1], 0.0453, 5e-4);
  EXPECT_EQ(data["lanes"][0]["lane"], 2) << "the best lane comes first";
  EXPECT_EQ(data["lanes"][0]["seeds"], ordered_json::parse(R"([["r0c1","norm",5,2.5]])"));
}

TEST(Payoff, LeavesOpenWhatChanceMayHaveDone) {
  RunRecord run;
  for (const double accuracy : {0.40, 0.80}) add_lane(run, std::ssize(run.lanes), accuracy, kFossil);
  for (const double accuracy : {0.45, 0.70}) add_lane(run, std::ssize(run.lanes), accuracy);
  EXPECT_NE(sentence(run).find("too close to tell from chance"), std::string::npos) << sentence(run);
}

TEST(Payoff, SaysThatGrowingCostAccuracy) {
  RunRecord run;
  for (const double accuracy : {0.40, 0.41, 0.42}) add_lane(run, std::ssize(run.lanes), accuracy, kFossil);
  for (const double accuracy : {0.70, 0.71, 0.72}) add_lane(run, std::ssize(run.lanes), accuracy);
  EXPECT_NE(sentence(run).find("-30.0 points"), std::string::npos) << sentence(run);
  EXPECT_NE(sentence(run).find("growing cost accuracy"), std::string::npos) << sentence(run);
}

TEST(Payoff, GivesNoIntervalOfASingleLaneAndNamesWhatIsMissing) {
  RunRecord run;
  add_lane(run, 0, 0.5, kFossil);
  EXPECT_NE(sentence(run).find("lanes that kept none: there are none to compare with"), std::string::npos)
      << sentence(run);
  add_lane(run, 1, 0.25);
  EXPECT_NE(sentence(run).find("+25.0 points; of a single lane there is no interval"), std::string::npos);
  EXPECT_TRUE(payoff_of(run)["difference"].is_null());
  EXPECT_TRUE(payoff_of(run)["grown"]["half_width"].is_null());
  RunRecord bare;
  add_lane(bare, 0, 0.5);
  EXPECT_NE(sentence(bare).find("No lane kept a seed: 50.0 %"), std::string::npos);
}

// A seed that is still on trial is not kept, and a test result counts for more than the last validation.
TEST(Payoff, TakesTestAccuracyAndWhatWasKeptAtTheEnd) {
  RunRecord run;
  add_lane(run, 0, 0.5, R"([{"slot":"r0c1","stage":"HOLDING","blueprint":"norm"}])");
  EXPECT_EQ(payoff_of(run)["lanes"][0]["kept"], 0);
  EXPECT_EQ(payoff_of(run)["lanes"][0]["group"], "on_trial");
  EXPECT_EQ(sentence(run),
            "No lane kept a seed. Left out: 1 lane whose seeds were still on trial at 50.0 %.");
  add_line(run, R"({"kind":"lane_result","lane":0,"test_accuracy":0.75,"parameters":30000,"seeds_kept":1})");
  const ordered_json data = payoff_of(run);
  EXPECT_EQ(data["measure"], "test accuracy");
  EXPECT_EQ(data["lanes"][0]["accuracy"], 0.75);
  EXPECT_EQ(data["lanes"][0]["parameters"], 30000);
  EXPECT_EQ(data["lanes"][0]["kept"], 1);
  EXPECT_EQ(data["lanes"][0]["group"], "grown");
}

// --validate-every: a network as it was when it was validated last; one that was lost by then has no older
// number instead.
TEST(Payoff, IsOfTheLastStepThatWasValidated) {
  RunRecord run;
  const auto add = [&](int64_t epoch, int64_t lane, const std::string& accuracy, const std::string& slots) {
    add_line(run, fmt::format(R"({{"kind":"lane","epoch":{},"lane":{},"validation_accuracy":{},"slots":{}}})",
                              epoch, lane, accuracy, slots));
  };
  add(1, 0, "0.25", "[]");
  add(1, 1, "0.25", "[]");
  add(2, 0, "0.5", "[]");
  add(2, 1, "null", "[]");
  add(3, 0, "null", kFossil);
  add(3, 1, "null", "[]");
  const ordered_json data = payoff_of(run);
  ASSERT_EQ(data["lanes"].size(), 1u);
  EXPECT_EQ(data["lanes"][0]["accuracy"], 0.5);
  EXPECT_EQ(data["lanes"][0]["group"], "bare") << "what it kept later was not measured";
}

TEST(Payoff, OfAPolicyIsTheLastRoundThatIsOver) {
  RunRecord run;
  const auto add = [&](int64_t round, double accuracy) {
    add_line(run,
             fmt::format(
                 R"({{"kind":"lane","round":{},"step":1,"lane":0,"validation_accuracy":{},"parameters":9}})",
                 round, accuracy));
  };
  add(1, 0.25);
  EXPECT_TRUE(payoff_of(run).is_null()) << "no round is over";
  add_line(run, R"({"kind":"round","round":1})");
  add(2, 0.5);
  EXPECT_EQ(payoff_of(run)["round"], 1);
  EXPECT_EQ(payoff_of(run)["lanes"][0]["accuracy"], 0.25);
  EXPECT_TRUE(payoff_of(RunRecord{}).is_null());
}

}  // namespace
}  // namespace espalier::watch
