// Fewer points, the same picture: a long series, reduced to what a chart some hundred pixels wide can show.
//
// Kept true: peaks survive. A series that is longer than the limit is cut into buckets, and each leaves its
// smallest and its largest value, in the order in which they came; all series over the same x stay aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier::watch {

class Thinning {
 public:
  // For series of `length` values; at most `most` remain (an even number of at least 2).
  Thinning(size_t length, size_t most);

  bool is_thinned() const { return num_buckets_ > 0; }

  // Where the remaining values stand: the first and the last place of each bucket.
  std::vector<int64_t> places(std::span<const int64_t> x) const;

  // NaN is missing: a bucket of nothing else leaves NaN.
  std::vector<double> values(std::span<const double> y) const;

 private:
  size_t begin_of(size_t bucket) const { return bucket * length_ / num_buckets_; }

  size_t length_;
  size_t num_buckets_ = 0;  // 0: nothing is left out
};

}  // namespace espalier::watch
