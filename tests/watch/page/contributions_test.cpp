#include "espalier/watch/page/contributions.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "espalier/watch/lines/reader.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

void add(RunRecord& run, int64_t epoch, const std::string& stage, const std::string& points) {
  add_line(
      run,
      fmt::format(
          R"({{"kind":"lane","epoch":{},"lane":1,"slots":[{{"slot":"r0c1","stage":"{}","blueprint":"norm","contribution_points":{}}}]}})",
          epoch, stage, points));
}

TEST(Contributions, AreOneCurveASeed) {
  RunRecord run;
  add(run, 1, "TRAINING", "null");
  add(run, 2, "BLENDING", "0.5");
  add(run, 3, "HOLDING", "1.5");
  add(run, 4, "PRUNED", "null");
  add(run, 9, "GERMINATED", "null");
  add(run, 10, "HOLDING", "-2");
  std::vector<const LaneLine*> lines;
  for (const LaneLine& line : run.lanes) lines.push_back(&line);
  const std::vector<int64_t> lanes{1};
  EXPECT_EQ(contributions_of(run, lines, lanes),
            ordered_json::parse(
                R"([{"lane":1,"slot":"r0c1","blueprint":"norm","x":[2,3],"y":[0.5,1.5]},
                    {"lane":1,"slot":"r0c1","blueprint":"norm","x":[10],"y":[-2]}])"));
  EXPECT_TRUE(contributions_of(run, lines, {}).empty());
}

}  // namespace
}  // namespace espalier::watch
