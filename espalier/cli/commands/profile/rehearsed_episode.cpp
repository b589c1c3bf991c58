#include "espalier/cli/commands/profile/rehearsed_episode.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier::cli {

void RehearsedEpisode::begin() {
  environments_.begin_episode(0);
  controller_.begin_episode(0);
  environments_.begin_with(controller_.first_states(0));
  seeds_ = {};
  num_planted_ = 0;
}

void RehearsedEpisode::rehearse(int64_t steps) {
  const int64_t length = environments_.episode_length();
  if (steps >= length)
    fail_usage("steps: want fewer than the {} of an episode, whose last decides nothing, got {}", length,
               steps);
  begin();
  while (environments_.epochs_done() < length) step();
  begin();
  while (environments_.epochs_done() + steps + 1 < length) step();
  seeds_ = {};
  num_planted_ = 0;
}

void RehearsedEpisode::step() {
  const train::EpochRecord record = environments_.train_epoch(controller_);
  for (const train::LaneRecord& lane : record.lanes) {
    for (const train::SlotReport& slot : lane.slots) seeds_[static_cast<size_t>(slot.state.stage)] += 1;
    num_planted_ += lane.action.op == SeedOp::kGerminate && lane.gate.passed() ? 1 : 0;
  }
}

std::string RehearsedEpisode::text() const {
  std::string stages;
  for (int stage = 0; stage < kNumSeedStages; ++stage) {
    const auto each = static_cast<SeedStage>(stage);
    if (holds_seed(each) && seeds_in(each) > 0)
      stages += fmt::format("{}{} {}", stages.empty() ? "" : ", ", name_of(each), seeds_in(each));
  }
  if (stages.empty()) return "no seed stood in these steps: networks were bare";
  return fmt::format("seeds in these steps: {}; planted {}", stages, num_planted_);
}

}  // namespace espalier::cli
