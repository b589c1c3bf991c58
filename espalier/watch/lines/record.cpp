#include "espalier/watch/lines/record.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace espalier::watch {
namespace {

void raise(Best& best, const Best& other) {
  if (std::isnan(other.validation_accuracy)) return;
  if (std::isnan(best.validation_accuracy) || other.validation_accuracy > best.validation_accuracy)
    best = other;
}

// What an epoch took, whatever the job calls it.
double seconds_of(const Numbers& numbers) {
  double sum = 0;
  for (const char* key : {"seconds", "time/episode_seconds", "time/update_seconds"})
    if (const double value = number_in(numbers, key); std::isfinite(value)) sum += value;
  return sum;
}

}  // namespace

double number_in(const Numbers& numbers, const std::string& key) {
  const auto found = numbers.find(key);
  return found == numbers.end() ? kMissing : found->second;
}

const char* name_of(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kFinished:
      return "finished";
    case RunState::kStopped:
      return "stopped";
  }
  return "?";
}

Best RunRecord::best() const {
  Best best;
  for (const LaneLine& line : lanes)
    raise(best, {line.validation_accuracy, line.round, line.step, line.lane});
  if (!lanes.empty()) return best;
  for (const EpochLine& line : epochs) {
    raise(best,
          {.validation_accuracy = number_in(line.numbers, "best_validation_accuracy"), .epoch = line.epoch});
    raise(best, {.validation_accuracy = number_in(line.numbers, "validation_accuracy"), .epoch = line.epoch});
  }
  for (const RoundLine& line : rounds)
    raise(best, {.validation_accuracy = number_in(line.numbers, "lanes/best_validation_accuracy"),
                 .round = line.round});
  return best;
}

double RunRecord::test_accuracy() const {
  return result ? number_in(result->numbers, "test_accuracy") : kMissing;
}

double RunRecord::seconds() const {
  if (result)
    if (const double value = number_in(result->numbers, "seconds"); std::isfinite(value)) return value;
  if (epochs.empty() && rounds.empty()) return kMissing;
  double sum = 0;
  for (const EpochLine& line : epochs) sum += seconds_of(line.numbers);
  for (const RoundLine& line : rounds) sum += seconds_of(line.numbers);
  return sum;
}

int64_t RunRecord::num_lanes() const {
  std::set<int64_t> seen;
  for (const LaneLine& line : lanes) seen.insert(line.lane);
  for (const EvaluatedLane& line : evaluated_lanes) seen.insert(line.lane);
  return std::max<int64_t>(std::ssize(seen), epochs.empty() ? 0 : 1);
}

int64_t RunRecord::last_epoch() const {
  int64_t last = 0;
  for (const LaneLine& line : lanes)
    if (line.round == 0 || line.round == last_round()) last = std::max(last, line.step);
  for (const EpochLine& line : epochs) last = std::max(last, line.epoch);
  return last;
}

int64_t RunRecord::last_round() const {
  // Rounds come in order; the one that is under way has lines of lanes only.
  const int64_t done = rounds.empty() ? 0 : rounds.back().round;
  return lanes.empty() ? done : std::max(done, lanes.back().round);
}

double RunRecord::last_return() const {
  if (result)
    if (const double value = number_in(result->numbers, "last_return"); std::isfinite(value)) return value;
  return rounds.empty() ? kMissing : number_in(rounds.back().numbers, "charts/episodic_return");
}

int64_t RunRecord::num_episodes() const {
  std::set<std::pair<uint32_t, int64_t>> played;
  for (const EvaluatedLane& line : evaluated_lanes) played.emplace(line.controller, line.episode);
  return std::ssize(played);
}

}  // namespace espalier::watch
