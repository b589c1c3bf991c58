#include "espalier/watch/page/data.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "espalier/watch/lines/reader.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

std::string lane_line(int64_t epoch, int64_t lane, double accuracy, const std::string& slots = "[]",
                      int64_t parameters = 100) {
  return fmt::format(
      R"({{"kind":"lane","epoch":{},"lane":{},"validation_accuracy":{},"parameters":{},"slots":{}}})", epoch,
      lane, accuracy, parameters, slots);
}

std::string slot(const std::string& name, const std::string& stage) {
  return fmt::format(R"([{{"slot":"{}","stage":"{}","blueprint":"norm"}}])", name, stage);
}

TEST(PageData, HoldsCurvesOfEveryLaneAndTheirMean) {
  RunRecord run;
  for (const auto& line :
       {lane_line(1, 0, 0.1), lane_line(1, 3, 0.3), lane_line(2, 0, 0.2), lane_line(2, 3, 0.6)})
    add_line(run, line);
  const ordered_json detail = page_data(run)["details"][0];
  EXPECT_EQ(detail["x"], ordered_json({1, 2}));
  EXPECT_EQ(detail["lanes"], ordered_json({0, 3}));
  EXPECT_EQ(detail["best_lane"], 3);
  EXPECT_EQ(detail["curves"]["validation_accuracy"], ordered_json({{0.1, 0.2}, {0.3, 0.6}}));
  EXPECT_EQ(detail["mean"]["validation_accuracy"], ordered_json({0.2, 0.4}));
  EXPECT_TRUE(detail["curves"]["train_loss"][0][0].is_null());
}

TEST(PageData, JoinsTheStepsOfAStageAndPartsThemWhereTheSlotWasEmpty) {
  RunRecord run;
  for (const auto& line :
       {lane_line(1, 0, 0, slot("r0c0", "TRAINING")), lane_line(2, 0, 0, slot("r0c0", "TRAINING")),
        lane_line(3, 0, 0, slot("r0c0", "BLENDING")), lane_line(4, 0, 0),
        lane_line(5, 0, 0, slot("r0c0", "BLENDING"))})
    add_line(run, line);
  const ordered_json rows = page_data(run)["details"][0]["growth"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["slot"], "r0c0");
  EXPECT_EQ(rows[0]["segments"], ordered_json({{1, 2, 2, 0}, {3, 3, 3, 0}, {5, 5, 3, 0}}));
}

TEST(PageData, TheFrontierHoldsWhatNoOtherBeats) {
  RunRecord run;
  add_line(run, lane_line(1, 0, 0.5, "[]", 100));
  add_line(run, lane_line(1, 1, 0.4, "[]", 200));
  add_line(run, lane_line(1, 2, 0.9, "[]", 300));
  add_line(run, lane_line(1, 3, 0.3, "[]", 100));
  const ordered_json frontier = page_data(run)["frontier"];
  EXPECT_EQ(frontier["points"].size(), 4u);
  EXPECT_EQ(frontier["front"], ordered_json({{100, 0.5, 0, 0}, {300, 0.9, 2, 0}}));
  EXPECT_EQ(frontier["measure"], "validation accuracy");
  add_line(run, R"({"kind":"lane_result","lane":2,"test_accuracy":0.8})");
  EXPECT_EQ(page_data(run)["frontier"]["measure"], "test accuracy");
}

TEST(PageData, StaysSmallHoweverLongTheRunWas) {
  RunRecord run;
  for (int64_t epoch = 1; epoch <= 3000; ++epoch)
    for (int64_t lane = 0; lane < 20; ++lane)
      add_line(run,
               lane_line(epoch, lane, 0.123456789, slot("r0c0", epoch % 2 == 0 ? "TRAINING" : "BLENDING")));
  const ordered_json data = page_data(run);
  EXPECT_LE(data["details"][0]["x"].size(), 400u);
  EXPECT_TRUE(data["details"][0]["thinned"]);
  EXPECT_LE(data["details"][0]["growth"][0]["segments"].size(), 401u);
  EXPECT_LT(data.dump().size(), 1500000u);
}

TEST(PageData, KeepsTheLastOfManyRounds) {
  RunRecord run;
  for (int64_t round = 1; round <= 500; ++round)
    for (int64_t step = 1; step <= 10; ++step)
      for (int64_t lane = 0; lane < 20; ++lane)
        add_line(run,
                 fmt::format(R"({{"kind":"lane","round":{},"step":{},"lane":{},"validation_accuracy":0.5}})",
                             round, step, lane));
  const ordered_json data = page_data(run);
  EXPECT_EQ(data["num_rounds"], 500);
  EXPECT_LE(data["details"].size(), 250u);
  EXPECT_GE(data["details"].size(), 50u);
  EXPECT_EQ(data["details"].back()["round"], 500);
}

TEST(PageData, ListsTheMostFrequentMistakesFirst) {
  RunRecord run;
  add_line(run, R"({"kind":"result","classes":["a","b"],"confusion":[[5,1],[3,7]]})");
  EXPECT_EQ(page_data(run)["result"]["mistakes"], ordered_json::parse(R"([["b","a",3,10],["a","b",1,6]])"));
}

TEST(PageData, AnEmptyRunHasAPageToo) {
  const ordered_json data = page_data(RunRecord{});
  EXPECT_TRUE(data["details"].empty());
  EXPECT_TRUE(data["best"]["validation_accuracy"].is_null());
}

TEST(PageData, OptionsDifferWhereOneRunHasAnother) {
  std::vector<RunRecord> runs(2);
  runs[0].config = {{"batch", 8}, {"seed", 1}, {"run-dir", "a"}};
  runs[1].config = {{"batch", 8}, {"seed", 2}, {"run-dir", "b"}, {"clip", 1.5}};
  EXPECT_EQ(differing_options(runs), ordered_json::parse(R"({"seed":[1,2],"clip":[null,1.5]})"));
}

}  // namespace
}  // namespace espalier::watch
