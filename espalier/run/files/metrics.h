// metrics.jsonl: one JSON object per line, whole lines only.
//
// Kept true: a line is handed to the system at once and as a whole, so that a killed process leaves whole
// lines (but for the last, which a reader skips and a resumed run cuts off); where the disk is full, lines
// wait in memory, in their order, and nothing is torn. May be used from several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace espalier::run {

class MetricsFile {
 public:
  // Opens or makes the file.
  explicit MetricsFile(std::filesystem::path path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Everything behind the first `bytes` goes. Fails where there are fewer.
  void cut_to(int64_t bytes);

  void add(const nlohmann::ordered_json& line);

  // All lines so far, those that wait included.
  int64_t size_bytes() const;

  // Empty while all lines are in the file; else why not.
  std::string trouble() const;
  // Tries again to write what waits, and flushes. Fails, saying what is lost, where it cannot be done or the
  // file is no longer under its name.
  void flush();

 private:
  void write_waiting();

  std::filesystem::path path_;
  mutable std::mutex mutex_;  // guards all below
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
  std::string waiting_;
  std::string trouble_;
};

}  // namespace espalier::run
