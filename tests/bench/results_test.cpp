#include "bench/results.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/peers.h"
#include "espalier/core/error.h"

namespace espalier::bench {
namespace {

BenchResults some() {
  BenchResults results{.card = "NVIDIA H200",
                       .machine = "NVIDIA H200, CUDA 13.0",
                       .torch = "2.11.0",
                       .commit = "abc",
                       .command = "espalier bench all",
                       .began = "2026-11-18T12:00:00Z",
                       .precision = "bf16",
                       .repeats = 3,
                       .is_complete = true,
                       .rates = {4.3e6, 7e8, "bf16", "a copy"}};
  RowResult& row = results.row("population", "8 x 64");
  row.command = "espalier bench population";
  for (const double us : {30.0, 10.0, 20.0})
    add_repeat(row,
               {{.name = "ours", .timing = {us, us, 1}, .floor_us = 5},
                {.name = "theirs | a", .timing = {3 * us, us, 1}, .script = "a.py", .checked = "within 1e-6"},
                {.name = "theirs, b", .timing = {2 * us, us, 1}, .script = "b.py"}},
               {"c.py: it is not there"});
  return results;
}

TEST(BenchResults, KeepsMediansAndSpreadOverRepeats) {
  BenchResults results = some();
  const RowResult& row = results.row("population", "8 x 64");
  EXPECT_EQ(results.rows.size(), 1u);
  ASSERT_EQ(row.cases.size(), 3u);
  EXPECT_EQ(row.ours()->median_us(), 20);
  EXPECT_EQ(row.ours()->low_us(), 10);
  EXPECT_EQ(row.ours()->high_us(), 30);
  EXPECT_EQ(row.best_peer()->name, "theirs, b");
  EXPECT_EQ(row.problems, std::vector<std::string>{"c.py: it is not there"});
}

TEST(BenchResults, AreReadBackAsTheyWereWritten) {
  const BenchResults results = some();
  const auto path = std::filesystem::temp_directory_path() / "espalier-bench-results-test.json";
  std::ofstream(path) << to_json(results);
  EXPECT_EQ(to_json(read_results(path.string())), to_json(results));
  std::filesystem::remove(path);
}

TEST(BenchResults, LeaveOutTheHostsTimeWhereNobodyKnowsIt) {
  BenchResults results = some();
  add_repeat(results.row("PPO round", "8"), {{.name = "ours", .timing = {30, 20}}}, {});
  const std::string text = to_json(results);
  const size_t second = text.find("PPO round");
  ASSERT_NE(second, text.npos);
  EXPECT_LT(text.find("hosts_us"), second);
  EXPECT_EQ(text.find("hosts_us", second), text.npos);
}

TEST(BenchResults, MakeATableWithRatiosFloorsAndWhatIsMissing) {
  const std::string table = markdown_table(some());
  EXPECT_NE(table.find("| population, 8 x 64 | **20.0 us (10.0 us to 30.0 us)** | 40.0 us (20.0 us to 60.0 "
                       "us), theirs, b | "
                       "2.00 | 5.00 us | 25 % |"),
            table.npos)
      << table;
  EXPECT_NE(table.find("- c.py: it is not there (population, 8 x 64)"), table.npos) << table;
  for (const char* part :
       {"`espalier bench all`", "NVIDIA H200", "2026-11-18", "commit abc", "4.3e+03 GB/s", "700 TFLOP/s"})
    EXPECT_NE(table.find(part), table.npos) << part << "\n" << table;
}

TEST(BenchResults, HaveFileNamesThatAreSafeEverywhere) {
  EXPECT_EQ(file_stem("NVIDIA H200", "2026-11-18T12:00:00Z"), "nvidia-h200-2026-11-18");
  EXPECT_EQ(file_stem("Intel(R) Xeon(R) CPU @ 2.20GHz/../x", "2026-11-18"),
            "intel-r-xeon-r-cpu-2-20ghz-x-2026-11-18");
  EXPECT_EQ(file_stem("\xc3\xa9 ..", "2026-11-18"), "machine-2026-11-18");
}

TEST(BenchResults, TellTimesInTheUnitThatSuits) {
  EXPECT_EQ(time_text(8.81), "8.81 us");
  EXPECT_EQ(time_text(17.04), "17.0 us");
  EXPECT_EQ(time_text(1720), "1.72 ms");
  EXPECT_EQ(time_text(226000), "226 ms");
  EXPECT_EQ(time_text(2.3e6), "2.30 s");
}

TEST(BenchResults, ReplaceOnlyWhatIsBetweenTheMarks) {
  const std::string begin(kTableBegin), end(kTableEnd);
  EXPECT_EQ(with_table("a\n" + begin + "\nold\n" + end + "\nb\n", "| new |\n", "f"),
            "a\n" + begin + "\n\n| new |\n\n" + end + "\nb\n");
  for (const std::string& text : {std::string("a"), begin, end + begin, begin + begin + end})
    EXPECT_THROW(with_table(text, "t", "f"), UsageError) << text;
}

TEST(PeerLines, AreCheckedBeforeTheyCount) {
  const PeerResults read =
      read_peer_lines("p.py",
                      "warning: noise\n"
                      R"({"name": "a", "shapes": "s", "median_us": 2, "best_us": 1, "host_us": 1})"
                      "\n"
                      R"({"name": "b", "median_us": -2, "best_us": 1, "host_us": 1})"
                      "\n"
                      R"({"name": "c", "median_us": "2", "best_us": 1, "host_us": 1})"
                      "\n"
                      R"({"name": "d", "median_us": 1, "best_us": 2, "host_us": 1})"
                      "\n"
                      R"({"name": 7, "median_us": 2, "best_us": 1, "host_us": 1})"
                      "\n"
                      R"({"problem": "no card"})"
                      "\n[1]\n");
  ASSERT_EQ(read.cases.size(), 1u);
  EXPECT_EQ(read.cases[0].name, "a");
  EXPECT_EQ(read.cases[0].script, "p.py");
  ASSERT_EQ(read.problems.size(), 5u);
  EXPECT_EQ(read.problems.back(), "p.py: no card");
}

}  // namespace
}  // namespace espalier::bench
