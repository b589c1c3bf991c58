#include "espalier/train/run_directory.h"

#include <unistd.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "espalier/core/atomic_file.h"
#include "espalier/core/error.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;

std::string fresh_name(const std::string& job) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char time[32];
  std::strftime(time, sizeof(time), "%Y%m%d-%H%M%S", &utc);
  return fmt::format("{}-{}-{:06x}", job, time, std::random_device{}() & 0xffffffu);
}

// `latest` points to the newest run of the folder. Made under another name and renamed, so that it always
// exists.
void link_latest(const fs::path& run) {
  const fs::path link = run.parent_path() / "latest";
  const fs::path made = run.parent_path() / fmt::format(".latest-{}", getpid());
  std::error_code ignored;  // a file system without links has runs, but no `latest`
  fs::remove(made, ignored);
  fs::create_directory_symlink(run.filename(), made, ignored);
  if (!ignored) fs::rename(made, link, ignored);
}

}  // namespace

RunDirectory::RunDirectory(const std::string& job, const std::string& path, const std::string& config_json)
    : path_(path.empty() ? fs::path("runs") / fresh_name(job) : fs::path(path)) {
  std::error_code code;
  fs::create_directories(path_, code);
  if (code) fail("run directory '{}': cannot be made: {}", path_.string(), code.message());
  if (fs::exists(path_ / "metrics.jsonl"))
    fail("run directory '{}' holds a run already: give another --run-dir, or none", path_.string());
  write_file("config.json", config_json);
  metrics_.open(path_ / "metrics.jsonl", std::ios::app);
  if (!metrics_) fail("run directory '{}': cannot write metrics.jsonl", path_.string());
  if (path.empty()) link_latest(path_);
}

void RunDirectory::write_file(const std::string& name, const std::string& text) const {
  AtomicFile file((path_ / name).string());
  file.write(text);
  file.commit();
}

void RunDirectory::write_metrics(const nlohmann::ordered_json& line) {
  metrics_ << line.dump() << '\n' << std::flush;
  if (!metrics_) fail("run directory '{}': cannot write metrics.jsonl: is the disk full?", path_.string());
  if (line_written) line_written(line);
}

}  // namespace espalier::train
