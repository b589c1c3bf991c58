#include "espalier/cli/commands/score_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace espalier::cli {
namespace {

// A multiple of guessing's loss: a rate that is merely too high for the first steps stays below it.
constexpr double kAbsurd = 10;

}  // namespace

std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return "not finite";
  return std::abs(loss) < 1e4 ? fmt::format("{:.4f}", loss) : fmt::format("{:.2e}", loss);
}

std::string loss_text(double loss, int64_t num_samples) {
  return num_samples == 0 ? "-" : loss_text(loss);
}

std::string accuracy_text(double share, int64_t num_samples) {
  return num_samples == 0 ? "-" : fmt::format("{:.2f} %", 100 * share);
}

std::optional<std::string> LossAlarm::check(double loss, int64_t num_classes) {
  const double guessing = std::log(static_cast<double>(std::max<int64_t>(num_classes, 2)));
  if (was_told_ || (std::isfinite(loss) && loss <= kAbsurd * guessing)) return std::nullopt;
  was_told_ = true;
  return fmt::format(
      "the loss is {}, where guessing among {} classes gives {:.2f}: training has gone wrong; lower "
      "--learning-rate {}, or set a smaller --clip",
      loss_text(loss), num_classes, guessing, learning_rate_);
}

}  // namespace espalier::cli
