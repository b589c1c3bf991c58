#include "espalier/watch/page/sentence.h"

#include <fmt/format.h>

#include <cmath>

namespace espalier::watch {
namespace {

constexpr const char* kNarrowSpace = "\xe2\x80\xaf";
constexpr const char* kMinus = "\xe2\x88\x92";

}  // namespace

std::string percent_words(double share) {
  return fmt::format("{:.1f}{}%", 100 * share, kNarrowSpace);
}

std::string points_words(double share_difference) {
  const double points = std::round(1000 * share_difference) / 10;
  return fmt::format("{}{:.1f}", points < 0 ? kMinus : "+", std::abs(points));
}

std::string parameters_words(double parameters) {
  if (parameters < 1e4) return fmt::format("{:.0f} parameters", parameters);
  if (parameters < 999.5e3) return fmt::format("{:.1f} thousand parameters", parameters / 1e3);
  return fmt::format("{:.2f} million parameters", parameters / 1e6);
}

std::string count_words(int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

Comparison verdict_on(const Interval& difference) {
  if (std::abs(difference.mean) <= difference.half_width) return Comparison::kUndecided;
  return difference.mean > 0 ? Comparison::kBetter : Comparison::kWorse;
}

std::string difference_words(const Interval& difference) {
  return fmt::format("{} points, 95{}% interval {} to {}", points_words(difference.mean), kNarrowSpace,
                     points_words(difference.mean - difference.half_width),
                     points_words(difference.mean + difference.half_width));
}

}  // namespace espalier::watch
