#include "espalier/train/population/epoch_record.h"

#include <algorithm>
#include <numeric>

namespace espalier::train {
namespace {

// The mean of what `value` gives, over lanes that were trained; over all where none was.
template <class Function>
double mean_over(const std::vector<LaneRecord>& lanes, const Function& value) {
  const auto was_trained = [](const LaneRecord& lane) { return lane.outcome == LaneOutcome::kTrained; };
  const bool any = std::ranges::any_of(lanes, was_trained);
  double sum = 0;
  int64_t count = 0;
  for (const LaneRecord& lane : lanes) {
    if (any && !was_trained(lane)) continue;
    sum += value(lane);
    count += 1;
  }
  return sum / static_cast<double>(std::max<int64_t>(count, 1));
}

}  // namespace

double LaneReward::sum() const {
  return std::accumulate(terms.begin(), terms.end(), 0.0);
}

int64_t EpochRecord::num_retired() const {
  return std::ranges::count(lanes, LaneOutcome::kRetired, &LaneRecord::outcome);
}

LaneMetrics EpochRecord::mean_trained() const {
  return {
      .loss = mean_over(lanes, [](const LaneRecord& lane) { return lane.trained.loss; }),
      .accuracy = mean_over(lanes, [](const LaneRecord& lane) { return lane.trained.accuracy; }),
      .gradient_norm = mean_over(lanes, [](const LaneRecord& lane) { return lane.trained.gradient_norm; })};
}

LaneScore EpochRecord::mean_validated() const {
  return {.loss = mean_over(lanes, [](const LaneRecord& lane) { return lane.validated.loss; }),
          .accuracy = mean_over(lanes, [](const LaneRecord& lane) { return lane.validated.accuracy; })};
}

}  // namespace espalier::train
