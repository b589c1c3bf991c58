// What `espalier bench all` measured: kept as JSON, and shown as the table of docs/benchmarks.md.
//
// Kept true: a file that is written is read back the same; the table says command, machine, date and commit,
// and whether everything was measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/harness.h"
#include "bench/rates.h"

namespace espalier::bench {

// One way to do a workload, measured `times_us.size()` times.
struct CaseResult {
  std::string name;
  std::string script;  // the peer's; empty: ours
  std::string note;
  std::string checked;            // what its outputs were compared with, see Case
  std::vector<double> times_us;   // the median of each repeat, in the order in which they were made
  std::vector<double> hosts_us;   // the host's CPU time, the same; 0: not known
  std::vector<double> floors_us;  // 0: none is known

  bool is_ours() const { return script.empty(); }
  double median_us() const;
  double low_us() const;
  double high_us() const;
  double floor_us() const;  // the median
  // Whether any is; a file leaves them out otherwise.
  bool knows_hosts() const;
};

struct RowResult {
  std::string name;     // "population"
  std::string shapes;   // "128 x 64, base 8"
  std::string command;  // what measures the row alone
  std::vector<CaseResult> cases;
  std::vector<std::string> problems;  // why a peer is missing, or the row itself

  // The first of ours, and the fastest of the others' that do the same; nullptr: there is none.
  const CaseResult* ours() const;
  const CaseResult* best_peer() const;
};

struct BenchResults {
  std::string card;     // "NVIDIA H200"
  std::string machine;  // with versions
  std::string torch;    // "2.11.0"
  std::string commit;
  std::string command;
  std::string began;      // "2026-11-18T12:00:00Z"
  std::string precision;  // "bf16"
  int64_t repeats = 1;    // wanted
  bool is_smoke = false;  // small and once: the numbers say nothing
  bool is_complete = false;
  MachineRates rates;
  std::vector<RowResult> rows;

  // Where the row is, made if need be.
  RowResult& row(const std::string& name, const std::string& shapes);
};

// Adds one more repeat to a row: cases are known by their names, a problem is kept once.
void add_repeat(RowResult& row, const std::vector<Case>& cases, const std::vector<std::string>& problems);

std::string to_json(const BenchResults& results);
// Fails with one sentence that names the file where it is not what to_json() writes.
BenchResults read_results(const std::string& path);

// "nvidia-h200-2026-11-18": letters, digits and dashes alone.
std::string file_stem(std::string_view card, std::string_view began);

// "1.72 ms": three digits, in the unit that suits.
std::string time_text(double us);

// The table in Markdown, from where and when to why peers are missing.
std::string markdown_table(const BenchResults& results);

// The text with what is between the two lines of kTableBegin and kTableEnd replaced. Fails naming the file
// where they are not there, once and in this order.
inline constexpr std::string_view kTableBegin = "<!-- espalier bench table: begin -->";
inline constexpr std::string_view kTableEnd = "<!-- espalier bench table: end -->";
std::string with_table(const std::string& text, const std::string& table, const std::string& path);

}  // namespace espalier::bench
