// Where a run leaves its results: runs/<job>-<time>-<short id>/, with the effective configuration and one
// JSON line an epoch, and a link `latest` beside it. Nothing is written outside.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace espalier::train {

class RunDirectory {
 public:
  // Makes `path`, or where that is empty a fresh runs/<job>-<time>-<id>. A directory that holds a run already
  // is refused: results are never mixed.
  RunDirectory(const std::string& job, const std::string& path, const std::string& config_json);

  const std::filesystem::path& path() const { return path_; }

  // A file beside the others, there as a whole or not at all.
  void write_file(const std::string& name, const std::string& text) const;

  // Appends one line to metrics.jsonl, and hands it to the system at once: Ctrl-C loses none.
  void write_metrics(const nlohmann::ordered_json& line);

  std::function<void(const nlohmann::ordered_json&)> line_written;  // told every line; may be empty

 private:
  std::filesystem::path path_;
  std::ofstream metrics_;
};

}  // namespace espalier::train
