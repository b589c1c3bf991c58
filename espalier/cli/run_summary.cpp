#include "espalier/cli/run_summary.h"

#include <fmt/format.h>

#include <cmath>

namespace espalier::cli {

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

std::string progress_text(const watch::RunRecord& run) {
  const bool has_rounds = run.last_round() > 0;
  const int64_t done = has_rounds ? run.last_round() : run.last_epoch();
  const char* const unit = has_rounds ? "rounds" : "epochs";
  if (done == 0) return "";
  const auto planned = run.config.find(unit);
  if (planned == run.config.end() || !planned->is_number_integer()) return fmt::format("{} {}", done, unit);
  return fmt::format("{} of {} {}", done, planned->get<int64_t>(), unit);
}

}  // namespace espalier::cli
