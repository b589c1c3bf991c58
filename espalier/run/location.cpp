#include "espalier/run/location.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <random>

#include "espalier/core/error.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "espalier/run/files/packed_metrics.h"

namespace espalier::run {
namespace fs = std::filesystem;

namespace {

std::string fresh_name(const std::string& job) {
  return fmt::format("{}-{}-{:06x}", job, utc_now("%Y%m%d-%H%M%S"), std::random_device{}() & 0xffffffu);
}

// The run directory that --resume means: itself, or the one around a checkpoint.
fs::path resumed_run(const std::string& resume) {
  const fs::path given = resume == "latest" ? fs::path(kRunsFolder) / "latest" : fs::path(resume);
  std::error_code code;
  const fs::path path = fs::canonical(given, code);
  if (code) fail_usage("--resume {}: '{}' is not there", resume, given.string());
  if (fs::exists(path / kManifestFile)) {
    if (const fs::path run = run_around(path); !run.empty()) return run;
    fail_usage("--resume {}: is a checkpoint outside its run: put it back into the folder '{}' of the run",
               resume, kCheckpoints);
  }
  if (fs::exists(path / kMetrics) || is_packed(path)) return path;
  fail_usage("--resume {}: want the directory of a run, one of its checkpoints, or latest", resume);
}

}  // namespace

std::string utc_now(const char* format) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), format, &utc);
  return text.data();
}

fs::path first_missing(const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || fs::exists(path, ignored)) return {};
  const fs::path around = first_missing(path.parent_path());
  return around.empty() ? path : around;
}

void link_latest(const fs::path& run) {
  // A file system without links, or a folder that may not be written, has runs but no `latest`.
  std::error_code ignored;
  const fs::path folder(kRunsFolder);
  fs::create_directories(folder, ignored);
  const fs::path own = fs::canonical(run, ignored);
  // Within runs/ by name alone, so that the folder may be moved as a whole.
  const fs::path target = own.parent_path() == fs::canonical(folder, ignored) ? own.filename() : own;
  const fs::path made = folder / fmt::format(".latest-{}", getpid());
  fs::remove(made, ignored);
  fs::create_directory_symlink(target, made, ignored);
  if (!ignored) fs::rename(made, folder / "latest", ignored);
}

fs::path run_path(const RunConfig& options, const std::string& job) {
  if (options.resume.empty())
    return options.run_dir.empty() ? fs::path(kRunsFolder) / fresh_name(job) : fs::path(options.run_dir);
  const fs::path resumed = resumed_run(options.resume);
  std::error_code code;
  if (!options.run_dir.empty() && !fs::equivalent(resumed, options.run_dir, code))
    fail_usage("--resume {}: its run is in '{}', and --run-dir says '{}': leave one of them out",
               options.resume, resumed.string(), options.run_dir);
  return resumed;
}

void make_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code) fail("run directory '{}': cannot be made: {}", path.string(), code.message());
}

}  // namespace espalier::run
