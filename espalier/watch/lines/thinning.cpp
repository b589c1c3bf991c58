#include "espalier/watch/lines/thinning.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace espalier::watch {

Thinning::Thinning(size_t length, size_t most)
    : length_(length), num_buckets_(length > most ? (most < 4 ? 1 : most / 2) : 0) {}

std::vector<int64_t> Thinning::places(std::span<const int64_t> x) const {
  if (!is_thinned()) return {x.begin(), x.end()};
  std::vector<int64_t> places;
  for (size_t bucket = 0; bucket < num_buckets_; ++bucket) {
    places.push_back(x[begin_of(bucket)]);
    places.push_back(x[begin_of(bucket + 1) - 1]);
  }
  return places;
}

std::vector<double> Thinning::values(std::span<const double> y) const {
  if (!is_thinned()) return {y.begin(), y.end()};
  std::vector<double> values;
  for (size_t bucket = 0; bucket < num_buckets_; ++bucket) {
    size_t low = begin_of(bucket), high = low;
    for (size_t i = low; i < begin_of(bucket + 1); ++i) {
      if (std::isnan(y[i])) continue;
      if (std::isnan(y[low]) || y[i] < y[low]) low = i;
      if (std::isnan(y[high]) || y[i] > y[high]) high = i;
    }
    const auto [first, second] = std::minmax(low, high);
    values.push_back(y[first]);
    values.push_back(y[second]);
  }
  return values;
}

}  // namespace espalier::watch
