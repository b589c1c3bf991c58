// What a step costs as a function of its size, fitted to measured times.
//
// The model: time = max(floor, start + slope size). Below the knee, where both meet, a device has more room
// than work, and one more lane is free; beyond it every lane costs its slope. Both parts are found by least
// squares of relative errors, so that small sizes count as much as large ones, over every way to cut the
// sizes in two.
#pragma once

#include <vector>

namespace espalier::bench {

struct Point {
  double size = 0;
  double time_us = 0;
};

struct ScalingFit {
  double floor_us = 0;  // what the smallest sizes take, whatever they are
  double start_us = 0;
  double slope_us = 0;  // for one more
  double knee = 0;      // the size where the line passes the floor; the smallest size where there is none
  double slope_error_us = 0;  // standard error of the slope; 0 where two points leave none to tell
  double largest_error = 0;   // the largest relative error of the model at a measured size
  double mean_error = 0;      // root of the mean squared relative error

  double at(double size) const;
};

// points: two or more, by size, which grows; times above 0.
ScalingFit fit_scaling(const std::vector<Point>& points);

}  // namespace espalier::bench
