// How the CPU's norms share a lane's batch out, and what a channel's values are added up in.
//
// Kept true: parts are made by the lane's shape alone, and added up in their order; so neither threads nor
// neighbours change a bit.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "espalier/lanes/active.h"
#include "espalier/tensor/parallel.h"

namespace espalier::lanes {

inline constexpr int64_t kPartValues = 1 << 15;  // in whole samples: work that is worth a thread's while
inline constexpr int64_t kPeriodValues = 256;    // at least, where there are fewer channels

struct NormSizes {
  explicit NormSizes(const at::Tensor& x)
      : batch(x.size(1)), channels(x.size(2)), height(x.size(3)), width(x.size(4)) {}

  int64_t row() const { return width * channels; }
  int64_t sample() const { return height * row(); }
  int64_t pooled_row() const { return width / 2 * channels; }
  int64_t count() const { return batch * height * width; }  // that a statistic is taken over
  int64_t period() const { return channels * std::max<int64_t>(1, kPeriodValues / channels); }
  int64_t part_samples() const { return std::max<int64_t>(1, kPartValues / sample()); }
  int64_t parts() const { return (batch + part_samples() - 1) / part_samples(); }

  int64_t batch, channels, height, width;
};

// A value per channel, repeated over the period.
template <class To, class From>
std::vector<To> repeated(const From* values, const NormSizes& sizes) {
  std::vector<To> all;
  all.reserve(static_cast<size_t>(sizes.period()));
  while (std::ssize(all) < sizes.period())
    for (int64_t c = 0; c < sizes.channels; ++c) all.push_back(static_cast<To>(values[c]));
  return all;
}

// Sums over a period, added up per channel.
inline void fold(const std::vector<double>& acc, int64_t channels, double* to) {
  std::fill(to, to + channels, 0.0);
  for (auto from = acc.begin(); from != acc.end(); from += channels)
    for (int64_t c = 0; c < channels; ++c) to[c] += from[c];
}

// Where a lane begins. const T: it is read alone, so that threads do not part a tensor from a lazy copy of
// it.
template <class T>
T* lane_of(const at::Tensor& stacked, int64_t lane) {
  if constexpr (std::is_const_v<T>)
    return stacked.const_data_ptr<T>() + lane * stacked.stride(0);
  else
    return stacked.mutable_data_ptr<T>() + lane * stacked.stride(0);
}

// One lane's part of the batch.
struct NormPart {
  int64_t lane, number, first, last;  // samples, the last exclusive
};

class NormParts {
 public:
  NormParts(const at::Tensor& x, const at::Tensor& entries) : sizes(x) {
    for (int64_t lane = 0; lane < x.size(0); ++lane)
      if (is_active(entries, lane)) lanes.push_back(lane);
  }

  template <class Body>
  void each(const Body& body) const {
    const int64_t parts = sizes.parts(), samples = sizes.part_samples();
    // Small lanes share a thread: waking one takes as long as some ten thousand values.
    const int64_t grain = std::max<int64_t>(1, 2 * kPartValues / (samples * sizes.sample()));
    parallel_for(0, std::ssize(lanes) * parts, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        body(NormPart{lanes[static_cast<size_t>(i / parts)], i % parts, i % parts * samples,
                      std::min((i % parts + 1) * samples, sizes.batch)});
    });
  }

  // Sums per channel that each part leaves: [lanes,parts,C] f64, for each of `kinds`.
  at::Tensor sums(int64_t all_lanes, int64_t kinds) const {
    return at::empty({all_lanes, sizes.parts(), kinds, sizes.channels}, at::kDouble);
  }
  double* sum(const at::Tensor& sums, const NormPart& part, int64_t kind) const {
    return sums.data_ptr<double>() +
           ((part.lane * sizes.parts() + part.number) * sums.size(2) + kind) * sizes.channels;
  }
  // All parts of one lane, in their order.
  std::vector<double> total(const at::Tensor& sums, int64_t lane, int64_t kind) const {
    std::vector<double> all(static_cast<size_t>(sizes.channels), 0.0);
    for (int64_t number = 0; number < sizes.parts(); ++number) {
      const double* const from = sum(sums, {lane, number, 0, 0}, kind);
      for (size_t c = 0; c < all.size(); ++c) all[c] += from[c];
    }
    return all;
  }

  NormSizes sizes;
  std::vector<int64_t> lanes;
};

}  // namespace espalier::lanes
