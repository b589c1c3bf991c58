// A curve in a row of characters, and the values behind it in bounded memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/watch/terminal/screen_line.h"

namespace espalier::watch {

// As many values as come, kept as at most kMost means over equally many of them: the more there are, the
// coarser.
class History {
 public:
  static constexpr size_t kMost = 256;

  void add(double value);  // NaN: a gap
  void clear() { *this = {}; }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_;
  int64_t values_a_mean_ = 1;
  int64_t num_waiting_ = 0;  // for the next mean
  int64_t num_finite_ = 0;   // finite ones among them
  double sum_ = 0;
};

// The range that a curve is drawn in.
struct Scale {
  double low = 0;
  double high = 1;
};
// The range of all finite values; widens `scale`, where there is one. low > high: there were none.
inline constexpr Scale kNoScale{1, 0};
Scale widened(Scale scale, const std::vector<double>& values);

// At most `cells` characters, one per value or, where there are more values, a mean of several. A gap is a
// space.
std::string sparkline(const std::vector<double>& values, int cells, Scale scale, Glyphs glyphs);

}  // namespace espalier::watch
