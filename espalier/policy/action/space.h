// The action space of the policy: eight heads in one fixed order, the choices of each, which of them an op
// uses, and how eight indices become the action that a lifecycle understands.
//
// Kept true: the order of the heads and of their choices is part of saved policies and never changes;
// uses_head() is the only table of causal relevance; every combination of indices in range is an action.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "espalier/core/seed_stage.h"

namespace espalier::policy {

enum class Head : uint8_t {
  kOp = 0,  // by the numbers of SeedOp
  kSlot = 1,
  kBlueprint = 2,        // index in the registry
  kStyle = 3,            // kStyles
  kTempo = 4,            // kTempoSteps
  kAmplitudeTarget = 5,  // kAmplitudeTargets
  kAmplitudeSpeed = 6,   // kAmplitudeSpeedSteps
  kAmplitudeCurve = 7,   // by the numbers of BlendCurve
};
inline constexpr int kNumHeads = 8;
inline constexpr std::array<const char*, kNumHeads> kHeadNames{
    "op", "slot", "blueprint", "style", "tempo", "alpha_target", "alpha_speed", "alpha_curve"};

constexpr int index_of(Head head) {
  return static_cast<int>(head);
}

// How a seed is joined to its host. The curve is that of the first ramp, which GERMINATE settles; a later
// SET_ALPHA_TARGET has a head of its own for the curve and takes the operator alone from here.
struct Style {
  const char* name;
  BlendOperator blend_operator;
  BlendCurve curve;
};
inline constexpr std::array<Style, 4> kStyles{{
    {"LINEAR_ADD", BlendOperator::kAdd, BlendCurve::kLinear},
    {"LINEAR_MULTIPLY", BlendOperator::kMultiply, BlendCurve::kLinear},
    {"SIGMOID_ADD", BlendOperator::kAdd, BlendCurve::kSigmoid12},  // the middle steepness of the three
    {"GATED_GATE", BlendOperator::kGate, BlendCurve::kLinear},     // the learned gate does the shaping
}};
inline constexpr std::array<int32_t, 3> kTempoSteps{3, 5, 8};
inline constexpr std::array<float, 3> kAmplitudeTargets{0.5f, 0.7f, 1.0f};
inline constexpr std::array<int32_t, 4> kAmplitudeSpeedSteps{0, 3, 5, 8};  // 0: at once

// The registry's `noop` seed, which trains nothing: there for tests, never for a policy to choose.
inline constexpr int32_t kNoopBlueprint = 0;

// Whether the op reads the head: where it does not, the head's log-probability, entropy and advantage count
// for nothing.
constexpr bool uses_head(SeedOp op, Head head) {
  constexpr bool kUses[kNumSeedOps][kNumHeads] = {
      // op, slot, blueprint, style, tempo, alpha_target, alpha_speed, alpha_curve
      {true, false, false, false, false, false, false, false},  // WAIT
      {true, true, true, true, true, true, false, false},       // GERMINATE
      {true, true, false, true, false, true, true, true},       // SET_ALPHA_TARGET
      {true, true, false, false, false, false, true, true},     // PRUNE
      {true, true, false, false, false, false, false, false},   // FOSSILIZE
      {true, true, false, false, false, false, false, false},   // ADVANCE
  };
  return kUses[static_cast<int>(op)][index_of(head)];
}

// The two sizes that a run decides.
struct ActionSpace {
  int64_t num_slots = 1;
  int64_t num_blueprints = 8;

  constexpr int64_t size(Head head) const {
    switch (head) {
      case Head::kOp:
        return kNumSeedOps;
      case Head::kSlot:
        return num_slots;
      case Head::kBlueprint:
        return num_blueprints;
      case Head::kStyle:
        return kStyles.size();
      case Head::kTempo:
        return kTempoSteps.size();
      case Head::kAmplitudeTarget:
        return kAmplitudeTargets.size();
      case Head::kAmplitudeSpeed:
        return kAmplitudeSpeedSteps.size();
      case Head::kAmplitudeCurve:
        return kNumBlendCurves;
    }
    return 0;
  }
  // Where the head's choices begin when those of all heads lie side by side, as logits do.
  constexpr int64_t offset(Head head) const {
    int64_t offset = 0;
    for (int i = 0; i < index_of(head); ++i) offset += size(static_cast<Head>(i));
    return offset;
  }
  constexpr int64_t num_choices() const {
    return offset(Head::kAmplitudeCurve) + size(Head::kAmplitudeCurve);
  }
};

// One index per head, in their order, to the lifecycle's action. A field that the op does not read keeps its
// default, so that two actions which do the same are equal. Indices have to be in range.
constexpr SeedAction to_seed_action(std::span<const int64_t, kNumHeads> choice) {
  const auto chosen = [&](Head head) { return static_cast<size_t>(choice[index_of(head)]); };
  SeedAction action{.op = static_cast<SeedOp>(chosen(Head::kOp))};
  const auto uses = [&](Head head) { return uses_head(action.op, head); };
  if (uses(Head::kSlot)) action.slot = static_cast<int32_t>(chosen(Head::kSlot));
  if (uses(Head::kBlueprint)) action.blueprint = static_cast<int32_t>(chosen(Head::kBlueprint));
  if (uses(Head::kStyle)) {
    action.blend_operator = kStyles[chosen(Head::kStyle)].blend_operator;
    action.curve = kStyles[chosen(Head::kStyle)].curve;
  }
  if (uses(Head::kTempo)) action.steps = kTempoSteps[chosen(Head::kTempo)];
  if (uses(Head::kAmplitudeTarget)) action.target = kAmplitudeTargets[chosen(Head::kAmplitudeTarget)];
  if (uses(Head::kAmplitudeSpeed)) action.steps = kAmplitudeSpeedSteps[chosen(Head::kAmplitudeSpeed)];
  if (uses(Head::kAmplitudeCurve)) action.curve = static_cast<BlendCurve>(chosen(Head::kAmplitudeCurve));
  return action;
}

}  // namespace espalier::policy
