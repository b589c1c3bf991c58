#include "bench/ppo_bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/scratch_folder.h"
#include "espalier/core/error.h"
#include "espalier/core/machine/child_process.h"
#include "espalier/core/text/json_fields.h"

namespace espalier::bench {
namespace {

namespace fs = std::filesystem;

// Microseconds of every round: its episode, then the update.
std::vector<double> rounds_us(const fs::path& metrics) {
  std::vector<double> times;
  std::ifstream in(metrics);
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    const std::string where = metrics.string();
    if (!line.is_object() || text_field(line, "kind", "", where) != "round") continue;
    times.push_back(1e6 * (number_field(line, "time/episode_seconds", 0, where) +
                           number_field(line, "time/update_seconds", 0, where)));
  }
  return times;
}

}  // namespace

void measure_ppo(const PpoCase& measured, const std::string& shapes, int64_t num_warm, Report& report) {
  const ScratchFolder scratch("", "ppo");
  const fs::path run = scratch.path() / "run";
  std::error_code code;
  std::vector<std::string> command{fs::read_symlink("/proc/self/exe", code).string(), "train", "ppo"};
  command.insert(command.end(), measured.flags.begin(), measured.flags.end());
  command.insert(command.end(), {"--run-dir", run.string(), "--no-tui"});
  const ProgramOutput ran = run_program(command);
  if (!ran.succeeded) {
    const size_t line = ran.errors.find("error:");
    fail("bench all: `{}` failed: {}", fmt::join(command, " "),
         line == ran.errors.npos ? ran.errors : ran.errors.substr(line));
  }
  std::vector<double> times = rounds_us(run / "metrics.jsonl");
  if (std::ssize(times) <= num_warm)
    fail("bench all: `{}` wrote {} rounds, want more than {}", fmt::join(command, " "), times.size(),
         num_warm);
  times.erase(times.begin(), times.begin() + num_warm);
  std::ranges::sort(times);
  report.add({.name = measured.name,
              .shapes = shapes,
              .timing = {.median_us = times[times.size() / 2], .best_us = times.front()},
              .note = fmt::format("rounds {} to {} of a run", num_warm + 1, num_warm + std::ssize(times))});
}

}  // namespace espalier::bench
