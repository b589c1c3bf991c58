#include "espalier/watch/terminal/sparkline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

namespace espalier::watch {
namespace {

constexpr size_t kLevels = 8;
constexpr std::array<std::string_view, kLevels> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, kLevels> kAscii = {"_", ".", "-", ":", "=", "+", "*", "#"};

double mean_of(std::span<const double> values) {
  double sum = 0;
  int64_t count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

std::string_view glyph(double value, Scale scale, Glyphs glyphs) {
  if (!std::isfinite(value)) return " ";
  const double range = scale.high - scale.low;
  // A flat curve lies in the middle.
  const double share = range > 0 ? (value - scale.low) / range : 0.5;
  const auto level = static_cast<size_t>(std::clamp(share * kLevels, 0.0, kLevels - 1.0));
  return glyphs == Glyphs::kUtf8 ? kBlocks[level] : kAscii[level];
}

}  // namespace

void History::add(double value) {
  if (std::isfinite(value)) {
    sum_ += value;
    ++num_finite_;
  }
  if (++num_waiting_ < values_a_mean_) return;
  values_.push_back(sum_ / static_cast<double>(num_finite_));  // 0/0: a gap
  num_waiting_ = num_finite_ = 0;
  sum_ = 0;
  if (values_.size() < kMost) return;
  for (size_t i = 0; i < kMost / 2; ++i) values_[i] = mean_of(std::span(values_).subspan(2 * i, 2));
  values_.resize(kMost / 2);
  values_a_mean_ *= 2;
}

Scale widened(Scale scale, const std::vector<double>& values) {
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const bool is_first = scale.low > scale.high;
    scale.low = is_first ? value : std::min(scale.low, value);
    scale.high = is_first ? value : std::max(scale.high, value);
  }
  return scale;
}

std::string sparkline(const std::vector<double>& values, int cells, Scale scale, Glyphs glyphs) {
  std::string text;
  if (cells <= 0) return text;
  const size_t shown = std::min(values.size(), static_cast<size_t>(cells));
  for (size_t i = 0; i < shown; ++i) {
    const size_t first = i * values.size() / shown;
    const size_t next = (i + 1) * values.size() / shown;
    text += glyph(mean_of(std::span(values).subspan(first, next - first)), scale, glyphs);
  }
  return text;
}

}  // namespace espalier::watch
