#include "bench/peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/machine/child_process.h"
#include "espalier/core/machine/torch_python.h"

namespace espalier::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// bench/peers beside the program or above it: in the checkout it lies two folders up from build/release.
fs::path peers_folder() {
  std::error_code code;
  fs::path folder = fs::read_symlink("/proc/self/exe", code).parent_path();
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path())
    if (fs::exists(folder / "bench" / "peers", code)) return folder / "bench" / "peers";
  return {};
}

// Why a script failed, on one line: its own {"problem": ...}, or the last line that it wrote to standard
// error, which in Python names the error.
std::string reason_in(const std::string& errors) {
  std::string last;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    const auto parsed = json::parse(line, nullptr, false);
    if (parsed.is_object() && parsed.contains("problem") && parsed["problem"].is_string())
      return parsed["problem"];
    if (line.find_first_not_of(" \t\r") != line.npos) last = line;
  }
  constexpr size_t kLongest = 300;
  if (last.empty()) return "it said nothing";
  return last.size() > kLongest ? last.substr(0, kLongest) + " ..." : last;
}

std::string text_in(const json& line, const char* key) {
  return line.contains(key) && line[key].is_string() ? line[key].get<std::string>() : std::string();
}

// Nothing where it is not a positive number.
std::optional<double> time_in(const json& line, const char* key) {
  if (!line.contains(key) || !line[key].is_number()) return std::nullopt;
  const double value = line[key].get<double>();
  return std::isfinite(value) && value > 0 ? std::optional(value) : std::nullopt;
}

void run_script(const std::string& name, const std::vector<std::string>& command, PeerResults& results) {
  const ProgramOutput ran = run_program(command);
  // What was measured before it failed counts.
  PeerResults read = read_peer_lines(name, ran.output);
  if (!ran.succeeded) read.problems.push_back(fmt::format("{} failed: {}", name, reason_in(ran.errors)));
  std::ranges::move(read.cases, std::back_inserter(results.cases));
  std::ranges::move(read.problems, std::back_inserter(results.problems));
}

// Scripts of --peer-dir: Python files, and programs that may be executed.
std::vector<fs::path> scripts_in(const std::string& folder) {
  std::error_code code;
  if (!fs::is_directory(folder, code))
    fail_usage("--peer-dir '{}': want a folder with scripts, got none", folder);
  std::vector<fs::path> scripts;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    if (!entry.is_regular_file(code) || entry.path().filename().string().starts_with('.')) continue;
    if (entry.path().extension() == ".py" || access(entry.path().c_str(), X_OK) == 0)
      scripts.push_back(entry.path());
  }
  std::ranges::sort(scripts);
  if (scripts.empty())
    fail_usage("--peer-dir '{}': want at least one *.py or executable file, got none", folder);
  return scripts;
}

}  // namespace

PeerResults read_peer_lines(const std::string& script, const std::string& output) {
  PeerResults results;
  std::istringstream lines(output);
  for (std::string text; std::getline(lines, text);) {
    const auto line = json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    if (const std::string problem = text_in(line, "problem"); !problem.empty()) {
      results.problems.push_back(fmt::format("{}: {}", script, problem));
      continue;
    }
    const std::string name = text_in(line, "name");
    const auto median_us = time_in(line, "median_us"), best_us = time_in(line, "best_us"),
               host_us = time_in(line, "host_us");
    if (name.empty() || !median_us || !best_us || !host_us || *best_us > *median_us) {
      results.problems.push_back(fmt::format(
          "{}: a line that is no case: want name, and best_us up to median_us and host_us above 0, got {}",
          script, text.substr(0, 200)));
      continue;
    }
    results.cases.push_back({.name = name,
                             .shapes = text_in(line, "shapes"),
                             .timing = {*median_us, *best_us, *host_us},
                             .note = text_in(line, "note"),
                             .script = script,
                             .checked = text_in(line, "checked")});
  }
  return results;
}

PeerResults run_peers(const PeerCall& call) {
  PeerResults results;
  const auto python = find_torch_python();
  const fs::path folder = peers_folder();
  const auto run_python = [&](const fs::path& script, std::vector<std::string> arguments) {
    const std::string name = script.filename().string();
    if (!python) {
      results.problems.push_back(fmt::format("{} was left out: no Python with torch was found", name));
      return;
    }
    arguments.insert(arguments.begin(), {python->program, script.string()});
    run_script(name, arguments, results);
  };
  for (const std::string& script : call.scripts) {
    if (folder.empty() || !fs::exists(folder / script)) {
      results.problems.push_back(
          fmt::format("{} was left out: bench/peers/{} is not beside this program", script, script));
      continue;
    }
    run_python(folder / script, call.arguments);
  }
  if (call.folder.empty()) return results;
  std::vector<std::string> arguments{"--workload", call.workload};
  arguments.insert(arguments.end(), call.arguments.begin(), call.arguments.end());
  for (const fs::path& script : scripts_in(call.folder)) {
    if (script.extension() == ".py") {
      run_python(script, arguments);
      continue;
    }
    std::vector<std::string> command{fs::absolute(script).string()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    run_script(script.filename().string(), command, results);
  }
  return results;
}

}  // namespace espalier::bench
