// How the page's sentences put numbers and verdicts.
#pragma once

#include <cstdint>
#include <string>

#include "espalier/core/interval.h"

namespace espalier::watch {

std::string percent_words(double share);            // "53.2 %"
std::string points_words(double share_difference);  // "+12.2": points of a percentage, with its sign
std::string parameters_words(double parameters);    // "12.3 thousand parameters"
std::string count_words(int64_t count, const char* one, const char* many);  // "1 lane", "3 lanes"

enum class Comparison : uint8_t { kBetter, kWorse, kUndecided };

// Whether the interval leaves out 0, and on which side.
Comparison verdict_on(const Interval& difference);

// "+12.2 points, 95 % interval +3.1 to +21.3"
std::string difference_words(const Interval& difference);

}  // namespace espalier::watch
