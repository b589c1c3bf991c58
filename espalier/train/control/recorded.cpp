#include "espalier/train/control/recorded.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/policy/action/space.h"
#include "espalier/run/archive.h"
#include "espalier/train/population/episode_seed.h"

namespace espalier::train {
namespace {

// The numbers that a recording's names have in this job.
std::vector<int32_t> numbers_of(const std::vector<std::string>& names, const std::vector<std::string>& all) {
  std::vector<int32_t> numbers;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(all, name);
    numbers.push_back(found == all.end() ? -1 : static_cast<int32_t>(found - all.begin()));
  }
  return numbers;
}

// The recording with the job's numbers of slots and blueprints.
Recording renumbered(Recording recording, const RecordedOptions& options) {
  if (recording.slots != options.slots)
    fail_usage("{}: was recorded on a host with the slots {}, and this one has {}: give --host {}",
               options.name, fmt::join(recording.slots, ","), fmt::join(options.slots, ","), recording.host);
  const std::vector<int32_t> blueprints = numbers_of(recording.blueprints, options.blueprints);
  const auto number_of = [&](int32_t blueprint) {
    const int32_t number = blueprints[static_cast<size_t>(blueprint)];
    if (number < 0)
      fail_usage("{}: plants {}, and this program has {}: use the program that it was recorded with",
                 options.name, recording.blueprints[static_cast<size_t>(blueprint)],
                 fmt::join(options.blueprints, ","));
    return number;
  };
  for (RecordedNetwork& network : recording.networks) {
    for (RecordedAction& recorded : network.actions)
      if (recorded.action.op == SeedOp::kGerminate)
        recorded.action.blueprint = number_of(recorded.action.blueprint);
    for (RecordedSeed& seed : network.seeds) seed.blueprint = number_of(seed.blueprint);
  }
  return recording;
}

// The place among the recorded networks of a job's network, counted on past its last.
size_t place_of(const Recording& recording, int64_t number) {
  return static_cast<size_t>(number) % recording.networks.size();
}

// Counts networks over episodes.
int64_t number_of(int64_t round, int64_t lane, int64_t lanes) {
  return episode_of(round) * lanes + lane;
}

bool is_legal(const SeedAction& action, const LaneReport& lane, const GrowthLimits& limits) {
  const auto slot = static_cast<size_t>(action.slot);
  if (action.op != SeedOp::kGerminate) return may_choose(lane.slots[slot].state, action.op);
  return action.blueprint != policy::kNoopBlueprint && limits.may_germinate(lane, slot);
}

SlotState standing(const RecordedSeed& seed) {
  return {.stage = SeedStage::kFossilized,
          .blend_operator = seed.blend_operator,
          .blueprint = seed.blueprint,
          .amplitude = seed.amplitude,
          .target = seed.amplitude,
          .num_seeds = 1};
}

}  // namespace

ReplayController::ReplayController(Recording recording, const RecordedOptions& options)
    : recording_(renumbered(std::move(recording), options)),
      options_(options),
      illegal_(static_cast<size_t>(options.lanes)) {}

void ReplayController::begin_episode(int64_t round) {
  round_ = round;
  std::ranges::fill(illegal_, 0);
}

const RecordedNetwork& ReplayController::network_for(int64_t lane) const {
  const int64_t shift = recording_.episodes > 1 ? recording_.lanes : 1;
  return recording_.networks[place_of(recording_, number_of(round_, lane, options_.lanes) + shift)];
}

std::vector<SeedAction> ReplayController::decide(std::span<const LaneReport> lanes) {
  std::vector<SeedAction> actions;
  for (const LaneReport& lane : lanes) {
    actions.emplace_back();  // waits
    const std::vector<RecordedAction>& schedule = network_for(lane.lane).actions;
    const auto found = std::ranges::find(schedule, lane.epoch, &RecordedAction::step);
    if (found == schedule.end()) continue;
    if (is_legal(found->action, lane, options_.limits))
      actions.back() = found->action;
    else
      illegal_[static_cast<size_t>(lane.lane)] += 1;
  }
  return actions;
}

void ReplayController::visit_state(run::StateArchive& archive) {
  archive.list("illegal", illegal_);
}

StaticController::StaticController(Recording recording, const RecordedOptions& options)
    : recording_(renumbered(std::move(recording), options)), options_(options) {
  for (const RecordedNetwork& network : recording_.networks) {
    if (std::ssize(network.seeds) > options.limits.max_seeds)
      fail_usage("{}: has networks with {} seeds, got --max-seeds {}: give --max-seeds {}", options.name,
                 network.seeds.size(), options.limits.max_seeds, network.seeds.size());
    for (const RecordedSeed& seed : network.seeds)
      if (const auto slot = static_cast<size_t>(seed.slot);
          !options.limits.enabled_slots.empty() && !options.limits.enabled_slots[slot])
        fail_usage("{}: has a seed in slot {}, which --slots leaves out: add it there", options.name,
                   options.slots[slot]);
  }
}

std::vector<std::vector<SlotState>> StaticController::first_states(int64_t round) const {
  std::vector<std::vector<SlotState>> states;
  for (int64_t lane = 0; lane < options_.lanes; ++lane) {
    std::vector<SlotState>& slots = states.emplace_back(options_.slots.size());
    for (const RecordedSeed& seed :
         recording_.networks[place_of(recording_, number_of(round, lane, options_.lanes))].seeds)
      slots[static_cast<size_t>(seed.slot)] = standing(seed);
  }
  return states;
}

std::vector<SeedAction> StaticController::decide(std::span<const LaneReport> lanes) {
  return std::vector<SeedAction>(lanes.size());
}

}  // namespace espalier::train
