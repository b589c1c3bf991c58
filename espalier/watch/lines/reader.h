// Reads a run directory while it is written, or afterwards (docs/runs.md).
//
// Kept true: whatever the files hold, reading ends with a record and never with a crash: a file that is
// missing counts as empty, a line that is not one of ours is skipped, and a damaged one is counted besides. A
// last line without its newline is still being written (or was cut off) and waits. refresh() reads only what
// is new; a metrics file that became shorter, or another file by that name, is read from its start. Metrics
// that were compressed (run/files/packed_metrics.h) are read as if they were not.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

// Adds one line of metrics.jsonl, without its newline.
void add_line(RunRecord& record, std::string_view line);

class RunReader {
 public:
  // Follows links (runs/latest). Fails where there is no such directory.
  explicit RunReader(const std::filesystem::path& run);

  // Returns whether anything changed since the last call.
  bool refresh();

  const RunRecord& record() const { return record_; }
  const std::filesystem::path& path() const { return path_; }  // absolute, without links

 private:
  bool read_metrics();
  bool read_packed_metrics();
  bool take_lines(std::string& pending);
  bool read_json(const std::string& name, nlohmann::ordered_json& into, std::string& seen) const;
  bool read_state();
  void start_over();

  std::filesystem::path path_;
  RunRecord record_;
  std::string seen_config_;  // which version was read: see read_json()
  std::string seen_environment_;
  uint64_t metrics_file_ = 0;  // its inode
  int64_t offset_bytes_ = 0;   // after the last whole line
  bool is_skipping_ = false;   // inside a line that is too long
  bool was_read_ = false;
};

// The whole run, once.
RunRecord read_run(const std::filesystem::path& run);

// Whether a directory looks like a run: it holds config.json or metrics.jsonl.
bool holds_run(const std::filesystem::path& directory);
// Fails where it does not.
void check_is_run(const std::filesystem::path& directory);

}  // namespace espalier::watch
