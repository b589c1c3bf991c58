#include "espalier/train/control/recorder.h"

#include <utility>

namespace espalier::train {

Recorder::Recorder(const std::string& controller, const PopulationConfig& options,
                   const grow::NetworkStack& population)
    : recording_{.controller = controller,
                 .host = options.host,
                 .slots = {},
                 .blueprints = population.blueprints().names(),
                 .lanes = options.lanes,
                 .episode_length = options.epochs,
                 .batches_per_step = options.batches_per_step,
                 .seed = options.seed},
      playing_(static_cast<size_t>(options.lanes)) {
  for (const grow::SlotSpec& slot : population.slots()) recording_.slots.push_back(slot.name);
}

Recorder::Recorder(Recording so_far)
    : recording_(std::move(so_far)), playing_(static_cast<size_t>(recording_.lanes)) {}

void Recorder::add_step(const EpochRecord& epoch) {
  if (epoch.epoch >= recording_.episode_length) return;  // nothing comes of what is decided after the last
  for (const LaneRecord& lane : epoch.lanes)
    if (lane.action.op != SeedOp::kWait)
      playing_[static_cast<size_t>(lane.lane)].actions.push_back({epoch.epoch, lane.action});
}

void Recorder::end_episode(const EpochRecord& last) {
  for (const LaneRecord& lane : last.lanes)
    for (size_t slot = 0; slot < lane.slots.size(); ++slot)
      if (const SlotState& state = lane.slots[slot].state; is_felt(state))
        playing_[static_cast<size_t>(lane.lane)].seeds.push_back({.slot = static_cast<int32_t>(slot),
                                                                  .blueprint = state.blueprint,
                                                                  .blend_operator = state.blend_operator,
                                                                  .amplitude = state.amplitude});
  for (RecordedNetwork& network : playing_)
    recording_.networks.push_back(std::exchange(network, RecordedNetwork{}));
  recording_.episodes += 1;
}

}  // namespace espalier::train
