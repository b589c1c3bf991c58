// A mean and how far it may be off.
#pragma once

#include <cstddef>
#include <vector>

namespace espalier::train {

struct Interval {
  double mean = 0;
  double half_width = 0;  // of the 95 % confidence interval by Student's t; 0 for fewer than two values
};

// Of independent values, or of differences between pairs.
Interval interval_of(const std::vector<double>& values);

// Of values that come in groups of one size, one after the other, and may be alike within a group: of the
// groups' means, of which each is one independent value. A single group is taken as independent values.
Interval interval_over_groups(const std::vector<double>& values, size_t group_size);

// The 97.5 % quantile of Student's t. degrees: 1 or more.
double student_t(double degrees);

}  // namespace espalier::train
