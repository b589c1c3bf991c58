#include "bench/scaling/fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "espalier/core/error.h"

namespace espalier::bench {
namespace {

struct Line {
  double start = 0, slope = 0, slope_error = 0;
};

// Least squares of (start + slope size - time) / time: weights are 1 / time^2.
Line line_through(const Point* begin, const Point* end) {
  double weights = 0, sizes = 0, times = 0;
  for (const Point* p = begin; p != end; ++p) {
    const double w = 1 / (p->time_us * p->time_us);
    weights += w, sizes += w * p->size, times += w * p->time_us;
  }
  const double middle = sizes / weights, level = times / weights;
  double spread = 0, together = 0;
  for (const Point* p = begin; p != end; ++p) {
    const double w = 1 / (p->time_us * p->time_us);
    spread += w * (p->size - middle) * (p->size - middle);
    together += w * (p->size - middle) * (p->time_us - level);
  }
  Line line;
  // A step does not get faster as it grows: noise alone says so.
  line.slope = std::max(0.0, together / spread);
  line.start = level - line.slope * middle;
  const auto n = end - begin;
  if (n > 2) {
    double squares = 0;
    for (const Point* p = begin; p != end; ++p) {
      const double far = (line.start + line.slope * p->size - p->time_us) / p->time_us;
      squares += far * far;
    }
    line.slope_error = std::sqrt(squares / static_cast<double>(n - 2) / spread);
  }
  return line;
}

// The level that is nearest to all of them, relatively.
double level_of(const Point* begin, const Point* end) {
  double weights = 0, times = 0;
  for (const Point* p = begin; p != end; ++p) {
    weights += 1 / (p->time_us * p->time_us);
    times += 1 / p->time_us;
  }
  return times / weights;
}

}  // namespace

double ScalingFit::at(double size) const {
  return std::max(floor_us, start_us + slope_us * size);
}

ScalingFit fit_scaling(const std::vector<Point>& points) {
  if (points.size() < 2) fail("fit_scaling: points: want two or more, got {}", points.size());
  for (size_t i = 0; i < points.size(); ++i)
    if (!(points[i].time_us > 0) || (i > 0 && !(points[i].size > points[i - 1].size)))
      fail("fit_scaling: points: want growing sizes and times above 0, got {} us at {}", points[i].time_us,
           points[i].size);
  ScalingFit best;
  const Point *const first = points.data(), *const last = first + points.size();
  // The first `flat` points lie on the floor, the others on the line, which takes two.
  for (size_t flat = 0; flat + 2 <= points.size(); ++flat) {
    const Line line = line_through(first + flat, last);
    ScalingFit fit{.floor_us = flat > 0 ? level_of(first, first + flat) : 0,
                   .start_us = line.start,
                   .slope_us = line.slope,
                   .slope_error_us = line.slope_error};
    double squares = 0;
    for (const Point& p : points) {
      const double far = std::abs(fit.at(p.size) - p.time_us) / p.time_us;
      fit.largest_error = std::max(fit.largest_error, far);
      squares += far * far;
    }
    fit.mean_error = std::sqrt(squares / static_cast<double>(points.size()));
    const double meet = fit.slope_us > 0 ? (fit.floor_us - fit.start_us) / fit.slope_us : points.back().size;
    fit.knee = flat > 0 ? std::clamp(meet, points.front().size, points.back().size) : points.front().size;
    // A floor has to earn its place: one more parameter fits a little better whatever was measured.
    if (flat == 0 || (best.mean_error > 1e-3 && fit.mean_error < 0.9 * best.mean_error)) best = fit;
  }
  return best;
}

}  // namespace espalier::bench
