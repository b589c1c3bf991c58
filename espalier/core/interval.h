// A mean and how far it may be off.
#pragma once

#include <cstddef>
#include <vector>

namespace espalier {

struct Interval {
  double mean = 0;
  double half_width = 0;  // half the 95 % confidence interval by Student's t; 0 for fewer than two values
};

// For independent values, or differences between pairs.
Interval interval_of(const std::vector<double>& values);

// For values that come in groups of one size, one after the other, and may be alike within a group: over the
// groups' means, each of which is one independent value. A single group is taken as independent values.
Interval interval_over_groups(const std::vector<double>& values, size_t group_size);

// The means of groups of one size that come one after the other.
std::vector<double> group_means(const std::vector<double>& values, size_t group_size);

// The mean of one group minus that of another, whose values are independent of each other and may vary
// differently: Welch's interval. 0 wide where a group has fewer than two values or none of them varies.
Interval difference_of_means(const std::vector<double>& values, const std::vector<double>& others);

// The 97.5 % quantile of Student's t. degrees: 1 or more.
double student_t(double degrees);

}  // namespace espalier
