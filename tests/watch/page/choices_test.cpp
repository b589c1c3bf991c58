#include "espalier/watch/page/choices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "espalier/watch/lines/reader.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

void add(RunRecord& run, int64_t round, int64_t step, const std::string& action,
         const std::string& outcome = "trained") {
  ordered_json line{{"kind", "lane"}, {"round", round}, {"step", step}, {"lane", 0}, {"outcome", outcome}};
  if (!action.empty()) line["action"] = action;
  add_line(run, line.dump());
}

ordered_json choices(const RunRecord& run, ChoicesBy by) {
  std::vector<const LaneLine*> lines;
  for (const LaneLine& line : run.lanes) lines.push_back(&line);
  return choices_of(run, lines, by);
}

// In the order wait, germinate, set the amplitude, prune, fossilize, advance.
TEST(Choices, AreCountedByStepAndByRound) {
  RunRecord run;
  for (int64_t round = 1; round <= 2; ++round) {
    add(run, round, 1, "GERMINATE r0c1 conv_light");
    add(run, round, 2, round == 1 ? "" : "ADVANCE r0c1");
    add(run, round, 3, "");  // after the last step nobody is asked
  }
  EXPECT_EQ(choices(run, ChoicesBy::kStep), ordered_json::parse(R"({"from":[1,2],"to":[1,2],
      "counts":[[0,2,0,0,0,0],[1,0,0,0,0,1]],"planted":[2]})"));
  EXPECT_EQ(choices(run, ChoicesBy::kRound)["counts"], ordered_json::parse("[[1,1,0,0,0,0],[0,1,0,0,0,1]]"));
}

TEST(Choices, OfLanesThatWereNotAskedAreNone) {
  RunRecord run;
  add(run, 1, 1, "GERMINATE r0c1 norm");
  add(run, 1, 2, "", "retired");
  add(run, 1, 3, "");
  EXPECT_EQ(choices(run, ChoicesBy::kStep)["from"], ordered_json({1}));
}

TEST(Choices, OfARunThatOnlyWaitsAreNotShown) {
  RunRecord run;
  for (int64_t step = 1; step <= 4; ++step) add(run, 1, step, "");
  EXPECT_TRUE(choices(run, ChoicesBy::kStep).is_null());
}

TEST(Choices, OfManyStepsAreCountedTogether) {
  RunRecord run;
  for (int64_t step = 1; step <= 1001; ++step) add(run, 1, step, "PRUNE r0c1");
  const ordered_json counted = choices(run, ChoicesBy::kStep);
  EXPECT_LE(counted["from"].size(), 120u);
  EXPECT_EQ(counted["to"].back(), 1000);
  int64_t all = 0;
  for (const ordered_json& each : counted["counts"]) all += each[3].get<int64_t>();
  EXPECT_EQ(all, 1000);
}

}  // namespace
}  // namespace espalier::watch
