#include "espalier/cli/commands/runs/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace espalier::cli {

namespace {

// Controllers that an evaluation was asked for; the last of them may not have played yet.
int64_t num_controllers(const watch::RunRecord& run) {
  const auto planned = run.config.find("controllers");
  if (planned == run.config.end() || !planned->is_string()) return std::ssize(run.controllers);
  return std::ranges::count(planned->get_ref<const std::string&>(), ',') + 1;
}

}  // namespace

std::string percent_text(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f} %", 100 * share) : "";
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return "";
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e12));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string return_text(double value) {
  return std::isfinite(value) ? fmt::format("{:.3f}", value) : "";
}

std::string progress_text(const watch::RunRecord& run) {
  if (const int64_t played = run.num_episodes(); played > 0) {
    const auto planned = run.config.find("episodes");
    if (planned == run.config.end() || !planned->is_number_integer())
      return fmt::format("{} episodes", played);
    return fmt::format("{} of {} episodes", played, planned->get<int64_t>() * num_controllers(run));
  }
  const bool has_rounds = run.last_round() > 0;
  const int64_t done = has_rounds ? run.last_round() : run.last_epoch();
  const char* const unit = has_rounds ? "rounds" : "epochs";
  if (done == 0) return "";
  const auto planned = run.config.find(unit);
  if (planned == run.config.end() || !planned->is_number_integer()) return fmt::format("{} {}", done, unit);
  return fmt::format("{} of {} {}", done, planned->get<int64_t>(), unit);
}

int64_t tree_bytes(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  int64_t bytes = 0;
  std::error_code code;
  // What vanishes meanwhile (a checkpoint that is replaced) counts as nothing.
  for (fs::recursive_directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    std::error_code ignored;
    if (at->is_symlink(ignored) || !at->is_regular_file(ignored)) continue;
    const auto size = at->file_size(ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace espalier::cli
