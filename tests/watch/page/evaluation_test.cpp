#include "espalier/watch/page/evaluation.h"

#include <gtest/gtest.h>

#include "espalier/watch/lines/reader.h"
#include "tests/watch/page/plain_sentence.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

TEST(Evaluation, ComparesEachControllerWithTheFirst) {
  RunRecord run;
  EXPECT_TRUE(evaluation_of(run).is_null());
  add_line(
      run,
      R"({"kind":"evaluated_lane","controller":"none","episode":1,"lane":0,"test_accuracy":0.5,"return":1,"parameters":100,"seeds_kept":0})");
  EXPECT_EQ(evaluation_of(run)["sentence"], "No controller has played all of its episodes yet.");
  add_line(run,
           R"({"kind":"evaluated","controller":"none","test_accuracy":0.5,"intervals_over":"episodes"})");
  add_line(run, R"({"kind":"evaluated","controller":"random","test_accuracy":0.625,
                    "test_accuracy_over_first":0.125,"test_accuracy_over_first_95":0.0625,
                    "test_accuracy_over_first_p":0.0078125})");
  add_line(run, R"({"kind":"evaluated","controller":"heuristic","test_accuracy":0.5,
                    "test_accuracy_over_first":0.01,"test_accuracy_over_first_95":0.0625})");
  const ordered_json data = evaluation_of(run);
  EXPECT_EQ(plain_sentence(data["sentence"]),
            "Pair by pair on the same episodes: none 50.0 % test accuracy; random 62.5 %, +12.5 points, 95 % "
            "interval +6.3 to +18.8, p = 0.008 against none: better; heuristic 50.0 %, +1.0 points, 95 % "
            "interval -5.3 "
            "to +7.3 against none: too close to tell from chance.");
  EXPECT_EQ(data["controllers"][0]["networks"], ordered_json::parse("[[1,0,0.5,1,100,0]]"));
  EXPECT_EQ(data["controllers"][1]["numbers"]["test_accuracy_over_first"], 0.125);
  EXPECT_EQ(data["controllers"][1]["numbers"]["test_accuracy_over_first_p"], 0.0078125);
}

TEST(Evaluation, OfASingleEpisodeSaysSo) {
  RunRecord run;
  add_line(run,
           R"({"kind":"evaluated","controller":"none","test_accuracy":0.5,"intervals_over":"networks"})");
  EXPECT_NE(evaluation_of(run)["sentence"].get<std::string>().find("--episodes"), std::string::npos);
}

}  // namespace
}  // namespace espalier::watch
