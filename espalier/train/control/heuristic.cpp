#include "espalier/train/control/heuristic.h"

#include <algorithm>

namespace espalier::train {
namespace {

bool is_under_way(SeedStage stage) {
  return holds_seed(stage) && stage != SeedStage::kFossilized;
}

bool stands_still(const std::vector<double>& accuracies) {
  constexpr int64_t kRecent = HeuristicController::kPlateauEpochs;
  if (std::ssize(accuracies) <= kRecent) return false;
  const auto recent = accuracies.end() - kRecent;
  const double before = *std::max_element(accuracies.begin(), recent);
  const double now = *std::max_element(recent, accuracies.end());
  return 100 * (now - before) < HeuristicController::kPlateauPoints;
}

}  // namespace

HeuristicController::HeuristicController(const ControllerOptions& options) : options_(options) {}

int64_t HeuristicController::shortest_life() const {
  return options_.gates.min_training_steps + kTempoSteps + kHoldSteps;
}

std::vector<SeedAction> HeuristicController::decide(std::span<const LaneReport> lanes) {
  std::vector<SeedAction> actions;
  for (const LaneReport& lane : lanes) actions.push_back(decide(lane));
  return actions;
}

SeedAction HeuristicController::decide(const LaneReport& lane) const {
  bool any = false;
  for (size_t slot = 0; slot < lane.slots.size(); ++slot) {
    if (!is_under_way(lane.slots[slot].state.stage)) continue;
    const SlotState& state = lane.slots[slot].state;
    const SeedAction action = tend(lane, static_cast<int32_t>(slot));
    // It can never go: others need not wait for that.
    if (action.op == SeedOp::kPrune && state.stage == SeedStage::kHolding && is_barred(state)) continue;
    any = true;
    if (action.op != SeedOp::kWait && may_choose(state, action.op)) return action;
  }
  return any ? SeedAction{} : germinate(lane);
}

SeedAction HeuristicController::tend(const LaneReport& lane, int32_t index) const {
  const SlotReport& slot = lane.slots[static_cast<size_t>(index)];
  const SlotState& state = slot.state;
  const SeedAction wait{}, advance{.op = SeedOp::kAdvance, .slot = index},
      prune{.op = SeedOp::kPrune, .slot = index}, fossilize{.op = SeedOp::kFossilize, .slot = index};
  if (is_removing(state)) return wait;
  switch (state.stage) {
    case SeedStage::kTraining:
      if (grow::gate_g2(state, slot.measured, options_.gates).passed()) return advance;
      return lane.is_validated && state.steps_in_stage >= kPatienceSteps ? prune : wait;
    case SeedStage::kBlending:
      return grow::gate_g3(state).passed() ? advance : wait;
    case SeedStage::kHolding: {
      if (state.steps_in_stage < kHoldSteps || is_ramping(state)) return wait;
      const auto& gained = slot.measured.contribution_points;
      const bool is_late = lane.is_validated && state.steps_in_stage >= kMaxHoldSteps;
      if (!gained) return is_late ? prune : wait;
      if (!(*gained > 0)) return prune;  // also what is not a number
      if (*gained < kKeepPoints && !is_late) return wait;
      if (grow::gate_g5(state, slot.measured, options_.gates).passed()) return fossilize;
      return is_late ? prune : wait;
    }
    default:
      return wait;
  }
}

// Where least was tried, the deepest first: there a seed is cheap, and sees what the classifier sees. The
// blueprints take turns.
SeedAction HeuristicController::germinate(const LaneReport& lane) const {
  const bool has_time = lane.num_epochs - lane.epoch >= shortest_life();
  if (options_.blueprints.empty() || !has_time || !stands_still(lane.accuracies)) return {};
  int32_t chosen = -1;
  size_t tried = 0;
  for (size_t slot = 0; slot < lane.slots.size(); ++slot) {
    const SlotState& state = lane.slots[slot].state;
    tried += static_cast<size_t>(state.num_seeds);
    if (!options_.limits.may_germinate(lane, slot)) continue;
    if (chosen < 0 || state.num_seeds <= lane.slots[static_cast<size_t>(chosen)].state.num_seeds)
      chosen = static_cast<int32_t>(slot);
  }
  if (chosen < 0) return {};
  return {.op = SeedOp::kGerminate,
          .slot = chosen,
          .blueprint = options_.blueprints[tried % options_.blueprints.size()],
          .blend_operator = policy::kStyles[kStyle].blend_operator,
          .curve = policy::kStyles[kStyle].curve,
          .steps = kTempoSteps};
}

}  // namespace espalier::train
