// Measured times and their fits as one SVG picture, readable on light and dark pages.
#pragma once

#include <string>
#include <vector>

#include "bench/scaling/fit.h"

namespace espalier::bench {

struct ScalingCurve {
  std::string axis;    // "lanes"
  std::string shapes;  // what stays as it is: "batch 64, base 8, 32x32"
  std::vector<Point> points;
  ScalingFit fit;
};

// One panel per curve, both axes by powers of two. caption: machine, command and commit, below.
std::string scaling_svg(const std::vector<ScalingCurve>& curves, const std::vector<std::string>& caption);

}  // namespace espalier::bench
