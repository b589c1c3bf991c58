#include "espalier/core/interval.h"

#include <cmath>

#include "espalier/core/error.h"

namespace espalier {

// Abramowitz and Stegun 26.7.5; its error is below 1 % from three degrees on, the first two are exact.
double student_t(double degrees) {
  if (degrees < 1.5) return 12.7062;
  if (degrees < 2.5) return 4.3027;
  const double z = 1.959964, z2 = z * z;
  return z + z * (z2 + 1) / (4 * degrees) + z * ((5 * z2 + 16) * z2 + 3) / (96 * degrees * degrees) +
         z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * degrees * degrees * degrees);
}

namespace {

struct MeanAndVariance {
  double mean = 0;
  double variance = 0;  // the mean's; 0 for fewer than two values
};

MeanAndVariance mean_and_its_variance(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  MeanAndVariance made;
  for (const double value : values) made.mean += value / count;
  if (values.size() < 2) return made;
  double squares = 0;
  for (const double value : values) squares += (value - made.mean) * (value - made.mean);
  made.variance = squares / (count - 1) / count;
  return made;
}

}  // namespace

Interval interval_of(const std::vector<double>& values) {
  const auto [mean, variance] = mean_and_its_variance(values);
  if (values.size() < 2) return {.mean = mean};
  return {.mean = mean,
          .half_width = student_t(static_cast<double>(values.size()) - 1) * std::sqrt(variance)};
}

// B. L. Welch, Biometrika 34 (1947): degrees by Welch and Satterthwaite.
Interval difference_of_means(const std::vector<double>& values, const std::vector<double>& others) {
  const auto [mean, variance] = mean_and_its_variance(values);
  const auto [other_mean, other_variance] = mean_and_its_variance(others);
  Interval interval{.mean = mean - other_mean};
  const double sum = variance + other_variance;
  if (values.size() < 2 || others.size() < 2 || sum == 0) return interval;
  const double degrees = sum * sum /
                         (variance * variance / static_cast<double>(values.size() - 1) +
                          other_variance * other_variance / static_cast<double>(others.size() - 1));
  interval.half_width = student_t(degrees) * std::sqrt(sum);
  return interval;
}

std::vector<double> group_means(const std::vector<double>& values, size_t group_size) {
  if (group_size == 0 || values.size() % group_size != 0)
    fail("interval: {} values are no groups of {}; this is a bug of who asks", values.size(), group_size);
  std::vector<double> means(values.size() / group_size);
  for (size_t i = 0; i < values.size(); ++i)
    means[i / group_size] += values[i] / static_cast<double>(group_size);
  return means;
}

Interval interval_over_groups(const std::vector<double>& values, size_t group_size) {
  const std::vector<double> means = group_means(values, group_size);
  return interval_of(means.size() < 2 ? values : means);
}

}  // namespace espalier
