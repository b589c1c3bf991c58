#include "espalier/run/earlier.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "espalier/core/files/lock.h"
#include "espalier/core/machine/program.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "espalier/run/files/metric_keys.h"
#include "espalier/run/files/packed_metrics.h"
#include "espalier/run/location.h"

namespace espalier::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// "threads" is compared by what it came to, not by what was asked for; lanes may go on on other devices, and
// on other numbers of them.
constexpr std::array<std::string_view, 15> kFreeKeys = {
    "run-dir",          "resume",         "restart",    "allow-change", "checkpoint-minutes",
    "keep-checkpoints", "device-memory",  "save",       "convolutions", "timing",
    "time-every",       "report-minutes", "lane-lines", "threads",      "devices"};

Json read_object(const fs::path& file) {
  std::ifstream stream(file);
  Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

// The last line of a file, without its newline; empty where it has none.
std::string last_line(const fs::path& path) {
  constexpr std::streamoff kLongest = 64 << 20;  // a confusion matrix of a thousand classes takes a few MB
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  for (std::streamoff length = 1 << 14; size > 0; length *= 4) {
    const std::streamoff taken = std::min(length, size);
    std::string text(static_cast<size_t>(taken), '\0');
    file.clear();
    file.seekg(size - taken);
    file.read(text.data(), taken);
    if (!file || text.back() != '\n') return {};
    text.pop_back();
    const size_t begin = text.rfind('\n');
    if (begin != text.npos) return text.substr(begin + 1);
    if (taken == size) return text;
    if (length >= kLongest) return {};
  }
  return {};
}

}  // namespace

std::string job_of(const fs::path& run) {
  const Json environment = read_object(run / "environment.json");
  const auto job = environment.find("job");
  return job != environment.end() && job->is_string() ? job->get<std::string>() : std::string();
}

std::string kind_text(const std::string& job) {
  const bool is_vowel = !job.empty() && std::string_view("aeiou").find(job.front()) != std::string_view::npos;
  return fmt::format("that is {} {} run", is_vowel ? "an" : "a", job);
}

std::string resume_command(const std::string& job, const fs::path& run) {
  const std::string path = run.string();
  std::vector<const char*> words{"espalier", "train", job.c_str(), "--resume", path.c_str()};
  if (job == "evaluate") words.erase(words.begin() + 1);
  return shell_line(static_cast<int>(words.size()), words.data());
}

bool ends_with_result(const fs::path& run) {
  if (is_packed(run)) return true;  // only finished runs are
  const Json line = Json::parse(last_line(run / kMetrics), nullptr, /*allow_exceptions=*/false);
  return kind_of_line(line) == LineKind::kResult;
}

std::span<const std::string_view> free_keys() {
  return kFreeKeys;
}

Json without_free_keys(Json config) {
  if (!config.is_object()) return config;  // a damaged run's
  for (const std::string_view key : free_keys()) config.erase(std::string(key));
  return config;
}

std::optional<fs::path> stopped_run_like(const fs::path& folder, const std::string& job, const Json& config) {
  // Without an order of keys.
  const nlohmann::json wanted = without_free_keys(config);
  std::optional<fs::path> newest;
  fs::file_time_type newest_time;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const fs::path& path = at->path();
    std::error_code ignored;
    if (at->is_symlink(ignored) || !fs::is_regular_file(path / "config.json", ignored)) continue;
    if (job_of(path) != job) continue;
    if (nlohmann::json(without_free_keys(read_object(path / "config.json"))) != wanted) continue;
    const std::vector<std::string> names = CheckpointFolder(path / kCheckpoints).names();
    if (names.empty() || lock_holder((path / "lock").string()) || ends_with_result(path)) continue;
    const auto time = fs::last_write_time(path / kCheckpoints / names.back() / kManifestFile, ignored);
    if (ignored || (newest && time <= newest_time)) continue;
    newest = path;
    newest_time = time;
  }
  return newest;
}

}  // namespace espalier::run
