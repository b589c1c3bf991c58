#include "espalier/watch/page/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/watch/lines/reader.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::watch {
namespace {

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

nlohmann::json data_in(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(Report, HoldsTheRunsData) {
  RunRecord run;
  run.name = "host-1";
  add_line(run, R"({"kind":"epoch","epoch":1,"validation_accuracy":0.5,"seconds":2})");
  const nlohmann::json data = data_in(report_page(run));
  EXPECT_EQ(data["name"], "host-1");
  EXPECT_EQ(data["epochs"]["values"]["validation_accuracy"], nlohmann::json({0.5}));
}

TEST(Report, NothingInARunBecomesMarkup) {
  const std::string hostile = "</script><script>alert(1)</script><!--&{{script}}\"'";
  RunRecord run;
  run.name = hostile;
  run.job = hostile;
  run.config[hostile] = hostile;
  run.environment["device"] = hostile;
  add_line(run, nlohmann::json{{"kind", "result"}, {"classes", {hostile}}, {"confusion", {{1}}}}.dump());
  const std::string clean = report_page(RunRecord{}), page = report_page(run);
  for (const char* part : {"<script", "</script", "<!--", "alert(1)</"})
    EXPECT_EQ(times(page, part), times(clean, part)) << part;
  EXPECT_EQ(data_in(page)["config"][hostile], hostile);
  EXPECT_EQ(times(live_page(run), "<script"), 1u);
}

TEST(Report, ANameThatIsNotUtf8MakesAPageAllTheSame) {
  RunRecord run;
  run.name = "run-\xff";
  EXPECT_NE(report_page(run).find("id=\"data\""), std::string::npos);
}

TEST(Report, LoadsNothingFromElsewhere) {
  const std::string page = report_page(RunRecord{});
  EXPECT_EQ(times(page, "https:"), 0u);
  EXPECT_EQ(times(page, "http:"), 1u);  // the name of SVG's namespace
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
}

TEST(Report, IsWrittenIntoTheRunsDirectoryAsAWhole) {
  const support::TemporaryFolder folder;
  folder.write("metrics.jsonl", "{\"kind\":\"epoch\",\"epoch\":1}\n");
  const auto path = write_report(folder.path());
  EXPECT_EQ(path, folder.path() / "report.html");
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text, report_page(read_run(folder.path())));
  EXPECT_ERROR(write_report(folder / "nothing"), Error, "nothing");
}

TEST(Report, AComparisonHoldsEveryRun) {
  std::vector<RunRecord> runs(2);
  runs[0].name = "one";
  runs[1].name = "two";
  const nlohmann::json data = data_in(comparison_page(runs));
  EXPECT_EQ(data["runs"][1]["name"], "two");
}

}  // namespace
}  // namespace espalier::watch
