// Whether paired differences could be chance: a test that assumes nothing about how they are spread, only
// that without an effect each of them could as well have come out with the other sign (R. A. Fisher, The
// Design of Experiments, 1935, section 21).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace espalier {

// Up to so many differences all assignments of signs are looked at, 2^16 at most; of more, as many are drawn.
inline constexpr size_t kMostExactSigns = 16;
inline constexpr size_t kDrawnSigns = size_t{1} << 16;

// The two-sided p-value: the share of assignments of signs to the differences whose mean is at least as far
// from 0. Drawn ones depend on the number of differences alone, and the one that was observed is counted
// among them, so it is never 0. 1 for no differences, or where all are 0.
double sign_flip_p(const std::vector<double>& differences);

// As interval_over_groups(): over the means of groups, or over all values of a single one.
double sign_flip_p_over_groups(const std::vector<double>& differences, size_t group_size);

// "0.008", "< 0.001".
std::string p_text(double p);

}  // namespace espalier
