#include "espalier/train/population/episode_returns.h"

#include <fmt/format.h>

#include "espalier/run/archive.h"

namespace espalier::train {

void EpisodeReturns::begin(int64_t lanes, int64_t num_terms) {
  const auto count = static_cast<size_t>(lanes);
  terms_.assign(count, std::vector<double>(static_cast<size_t>(num_terms)));
  lengths_.assign(count, 0);
  returns_.assign(count, 0);
}

void EpisodeReturns::add(const EpochRecord& epoch) {
  for (const LaneRecord& lane : epoch.lanes) {
    const auto i = static_cast<size_t>(lane.lane);
    const LaneReward& reward = lane.reward;
    lengths_[i] += reward.counts ? 1 : 0;
    for (size_t term = 0; term < reward.terms.size(); ++term) {
      terms_[i][term] += reward.terms[term];
      returns_[i] += reward.terms[term];
    }
  }
}

void EpisodeReturns::visit_state(run::StateArchive& archive) {
  for (size_t i = 0; i < terms_.size(); ++i) archive.list(fmt::format("terms{}", i), terms_[i]);
  archive.list("lengths", lengths_);
  archive.list("returns", returns_);
}

}  // namespace espalier::train
