#include "espalier/grow/lifecycle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/grow/blend/amplitude.h"

namespace espalier::grow {
namespace {

// The only place where a stage changes.
void enter(SlotState& state, SeedStage to) {
  if (!may_follow(state.stage, to))
    fail("lifecycle: {} cannot follow {}; this is a bug of the lifecycle", name_of(to), name_of(state.stage));
  if (!holds_seed(to))
    state = SlotState{.flags = static_cast<uint8_t>(state.flags & kSlotBarred), .num_seeds = state.num_seeds};
  state.stage = to;
  state.steps_in_stage = 0;
}

void count(int32_t& steps) {
  if (steps < std::numeric_limits<int32_t>::max()) steps += 1;
}

void begin_epoch_of(SlotState& state, int32_t embargo_steps) {
  switch (state.stage) {
    case SeedStage::kDormant:
      return;  // nothing is counted: a free slot keeps its bytes
    case SeedStage::kGerminated:
      if (gate_g1(state).passed()) enter(state, SeedStage::kTraining);
      break;
    case SeedStage::kTraining:
      break;
    case SeedStage::kFossilized:
      step_ramp(state);  // none is under way: what moved before rests now
      break;
    case SeedStage::kBlending:
    case SeedStage::kHolding:
      if (is_removing(state) && !is_ramping(state)) {
        enter(state, SeedStage::kPruned);
      } else {
        step_ramp(state);
      }
      break;
    case SeedStage::kPruned:
      enter(state, SeedStage::kEmbargoed);
      break;
    case SeedStage::kEmbargoed:
      if (state.steps_in_stage >= embargo_steps) enter(state, SeedStage::kResetting);
      break;
    case SeedStage::kResetting:
      enter(state, SeedStage::kDormant);
      return;
  }
  count(state.steps_in_stage);
  if (holds_seed(state.stage)) count(state.age_steps);
}

// "ADVANCE, PRUNE", of what may be asked in a stage.
std::string ops_listed(SeedStage stage) {
  std::vector<const char*> names;
  for (int i = 0; i < kNumSeedOps; ++i) {
    const auto op = static_cast<SeedOp>(i);
    if ((ops_in(stage) & bit_of(op)) != 0) names.push_back(name_of(op));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Lifecycle::Lifecycle(LifecycleOptions options) : options_(std::move(options)) {
  if (options_.lanes < 1) fail_usage("lanes: want at least 1, got {}", options_.lanes);
  if (options_.slots.empty()) fail_usage("slots: want at least one name, got none");
  if (options_.num_blueprints < 1)
    fail_usage("num_blueprints: want at least 1, got {}", options_.num_blueprints);
  if (options_.embargo_steps < 1)
    fail_usage("embargo_steps: want at least 1, got {}", options_.embargo_steps);
  check_gates(options_.gates);
  states_.resize(static_cast<size_t>(options_.lanes) * options_.slots.size());
}

size_t Lifecycle::index_of(int64_t lane, int64_t slot) const {
  if (lane < 0 || lane >= num_lanes()) fail_usage("lane: want 0 to {}, got {}", num_lanes() - 1, lane);
  if (slot < 0 || slot >= num_slots())
    fail_usage("slot: want 0 to {} ({}), got {}", num_slots() - 1, fmt::join(options_.slots, ", "), slot);
  return static_cast<size_t>(lane) * options_.slots.size() + static_cast<size_t>(slot);
}

std::string Lifecycle::place(int64_t lane, int64_t slot) const {
  return fmt::format("lane {}, slot {}", lane, options_.slots[static_cast<size_t>(slot)]);
}

// The slot that is asked to do `op`, which its stage must allow.
SlotState& Lifecycle::state_for(SeedOp op, int64_t lane, int64_t slot) {
  SlotState& state = states_[index_of(lane, slot)];
  if ((ops_in(state.stage) & bit_of(op)) == 0)
    fail_usage("{}: cannot {} in stage {}; allowed there: {}", place(lane, slot), name_of(op),
               name_of(state.stage), ops_listed(state.stage));
  return state;
}

void Lifecycle::check_ramp(SeedOp op, int64_t lane, int64_t slot, int32_t steps, BlendCurve curve) const {
  const char* stage = name_of(at(lane, slot).stage);
  if (steps < 0)
    fail_usage("{}: {} in stage {}: steps: want at least 0, got {}", place(lane, slot), name_of(op), stage,
               steps);
  if (static_cast<int>(curve) >= kNumBlendCurves)
    fail_usage("{}: {} in stage {}: curve: want 0 to {}, got {}", place(lane, slot), name_of(op), stage,
               kNumBlendCurves - 1, static_cast<int>(curve));
}

std::span<const SlotState> Lifecycle::lane_states(int64_t lane) const {
  return std::span(states_).subspan(index_of(lane, 0), options_.slots.size());
}

GateReport Lifecycle::germinate(int64_t lane, int64_t slot, const Germination& germination) {
  SlotState& state = state_for(SeedOp::kGerminate, lane, slot);
  SlotState seed = state;
  enter(seed, SeedStage::kGerminated);
  seed.blueprint = germination.blueprint;
  seed.blend_operator = germination.blend_operator;
  seed.curve = germination.curve;
  seed.ramp_steps = germination.tempo_steps;
  seed.target = germination.target;
  count(seed.num_seeds);
  GateReport report = gate_g0(seed, options_.num_blueprints);
  if (report.passed()) state = seed;
  return report;
}

GateReport Lifecycle::advance(int64_t lane, int64_t slot, const SeedMeasurements& measured) {
  SlotState& state = state_for(SeedOp::kAdvance, lane, slot);
  if (state.stage == SeedStage::kTraining) {
    GateReport report = gate_g2(state, measured, options_.gates);
    if (report.passed()) {
      enter(state, SeedStage::kBlending);
      begin_ramp(state, state.target, state.ramp_steps, state.curve);
    }
    return report;
  }
  GateReport report = gate_g3(state);
  if (report.passed()) enter(state, SeedStage::kHolding);
  return report;
}

void Lifecycle::set_amplitude_target(int64_t lane, int64_t slot, const Retarget& retarget) {
  SlotState& state = state_for(SeedOp::kSetAmplitudeTarget, lane, slot);
  check_ramp(SeedOp::kSetAmplitudeTarget, lane, slot, retarget.steps, retarget.curve);
  if (!(retarget.target > 0 && retarget.target <= 1))  // NaN too
    fail_usage("{}: SET_ALPHA_TARGET in stage {}: target: want above 0 and at most 1, got {}; PRUNE removes",
               place(lane, slot), name_of(state.stage), retarget.target);
  if (static_cast<int>(retarget.blend_operator) >= kNumBlendOperators)
    fail_usage("{}: SET_ALPHA_TARGET in stage {}: blend operator: want 0 to {}, got {}", place(lane, slot),
               name_of(state.stage), kNumBlendOperators - 1, static_cast<int>(retarget.blend_operator));
  state.blend_operator = retarget.blend_operator;
  begin_ramp(state, retarget.target, retarget.steps, retarget.curve);
}

void Lifecycle::prune(int64_t lane, int64_t slot, const Removal& removal) {
  SlotState& state = state_for(SeedOp::kPrune, lane, slot);
  check_ramp(SeedOp::kPrune, lane, slot, removal.steps, removal.curve);
  if (removal.steps == 0 || state.amplitude == 0) {
    enter(state, SeedStage::kPruned);
    return;
  }
  if (state.stage == SeedStage::kBlending && is_ramping(state))
    fail_usage(
        "{}: cannot PRUNE over {} steps in stage {} while the amplitude ({:.4g}) moves to {:.4g}; allowed "
        "there: PRUNE at once, or WAIT until it arrives",
        place(lane, slot), removal.steps, name_of(state.stage), state.amplitude, state.target);
  if (state.stage == SeedStage::kHolding) enter(state, SeedStage::kBlending);
  begin_ramp(state, 0, removal.steps, removal.curve);
  state.flags |= kSlotRemoving;
}

void Lifecycle::keep(int64_t lane, int64_t slot) {
  SlotState& state = states_[index_of(lane, slot)];
  if (!is_removing(state) || state.amplitude == 0)
    fail_usage("{}: cannot keep a seed in stage {} at amplitude {:.4g}: want a removal under way, above 0",
               place(lane, slot), name_of(state.stage), state.amplitude);
  enter(state, SeedStage::kHolding);
  begin_ramp(state, state.amplitude, 0, state.curve);
  state.flags &= static_cast<uint8_t>(~kSlotRemoving);
}

GateReport Lifecycle::fossilize(int64_t lane, int64_t slot, const SeedMeasurements& measured) {
  SlotState& state = state_for(SeedOp::kFossilize, lane, slot);
  GateReport report = gate_g5(state, measured, options_.gates);
  if (report.passed()) enter(state, SeedStage::kFossilized);
  return report;
}

void Lifecycle::bar(int64_t lane, int64_t slot) {
  states_[index_of(lane, slot)].flags |= kSlotBarred;
}

GateReport Lifecycle::act(int64_t lane, const SeedAction& action, const SeedMeasurements& measured) {
  if (action.op != SeedOp::kWait && is_barred(at(lane, action.slot)) && (kBarredOps & bit_of(action.op)) != 0)
    fail_usage("{}: cannot {}: the slot is barred, since the network collapsed by what was done there; WAIT",
               place(lane, action.slot), name_of(action.op));
  switch (action.op) {
    case SeedOp::kWait:
      return {};
    case SeedOp::kGerminate:
      return germinate(lane, action.slot,
                       {.blueprint = action.blueprint,
                        .blend_operator = action.blend_operator,
                        .curve = action.curve,
                        .tempo_steps = action.steps,
                        .target = action.target});
    case SeedOp::kSetAmplitudeTarget:
      set_amplitude_target(lane, action.slot,
                           {.target = action.target,
                            .steps = action.steps,
                            .curve = action.curve,
                            .blend_operator = action.blend_operator});
      return {};
    case SeedOp::kPrune:
      prune(lane, action.slot, {.steps = action.steps, .curve = action.curve});
      return {};
    case SeedOp::kFossilize:
      return fossilize(lane, action.slot, measured);
    case SeedOp::kAdvance:
      return advance(lane, action.slot, measured);
  }
  fail_usage("lane {}: op: want 0 to {}, got {}", lane, kNumSeedOps - 1, static_cast<int>(action.op));
}

void Lifecycle::step_lane(int64_t lane, std::vector<StageMove>& moves) {
  for (int64_t slot = 0; slot < num_slots(); ++slot) {
    SlotState& state = states_[index_of(lane, slot)];
    const SlotState before = state;
    begin_epoch_of(state, options_.embargo_steps);
    if (state.stage != before.stage)
      moves.push_back({.lane = lane,
                       .slot = slot,
                       .from = before.stage,
                       .to = state.stage,
                       .blueprint = before.blueprint});
  }
}

std::vector<StageMove> Lifecycle::begin_epoch() {
  std::vector<StageMove> moves;
  for (int64_t lane = 0; lane < num_lanes(); ++lane) step_lane(lane, moves);
  return moves;
}

std::vector<StageMove> Lifecycle::begin_epoch(int64_t lane) {
  std::vector<StageMove> moves;
  step_lane(lane, moves);
  return moves;
}

void Lifecycle::reset_lane(int64_t lane) {
  const size_t first = index_of(lane, 0);
  for (size_t slot = 0; slot < options_.slots.size(); ++slot) states_[first + slot] = SlotState{};
}

void Lifecycle::restore_lane(int64_t lane, std::span<const SlotState> states) {
  const size_t first = index_of(lane, 0);
  if (states.size() != options_.slots.size())
    fail("lane {}: want the states of {} slots, got {}", lane, options_.slots.size(), states.size());
  for (size_t slot = 0; slot < states.size(); ++slot) {
    if (const auto fault = fault_in(states[slot]))
      fail("{}: the state to restore is not sound: {}", place(lane, static_cast<int64_t>(slot)), *fault);
    if (states[slot].blueprint >= options_.num_blueprints)
      fail("{}: the state to restore has blueprint {}, want 0 to {}", place(lane, static_cast<int64_t>(slot)),
           states[slot].blueprint, options_.num_blueprints - 1);
  }
  std::ranges::copy(states, states_.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace espalier::grow
