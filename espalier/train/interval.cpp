#include "espalier/train/interval.h"

#include <cmath>

#include "espalier/core/error.h"

namespace espalier::train {

// Abramowitz and Stegun 26.7.5; its error is below 1 % from three degrees on, the first two are exact.
double student_t(double degrees) {
  if (degrees < 1.5) return 12.7062;
  if (degrees < 2.5) return 4.3027;
  const double z = 1.959964, z2 = z * z;
  return z + z * (z2 + 1) / (4 * degrees) + z * ((5 * z2 + 16) * z2 + 3) / (96 * degrees * degrees) +
         z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * degrees * degrees * degrees);
}

Interval interval_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  Interval interval;
  for (const double value : values) interval.mean += value / count;
  if (values.size() < 2) return interval;
  double squares = 0;
  for (const double value : values) squares += (value - interval.mean) * (value - interval.mean);
  interval.half_width = student_t(count - 1) * std::sqrt(squares / (count - 1) / count);
  return interval;
}

Interval interval_over_groups(const std::vector<double>& values, size_t group_size) {
  if (group_size == 0 || values.size() % group_size != 0)
    fail("interval: {} values are no groups of {}; this is a bug of who asks", values.size(), group_size);
  if (values.size() < 2 * group_size) return interval_of(values);
  std::vector<double> means(values.size() / group_size);
  for (size_t i = 0; i < values.size(); ++i)
    means[i / group_size] += values[i] / static_cast<double>(group_size);
  return interval_of(means);
}

}  // namespace espalier::train
