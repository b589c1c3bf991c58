#include "espalier/core/seed_stage.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace espalier {
namespace {

constexpr std::array<const char*, kNumSeedStages> kStageNames{
    "DORMANT",    "GERMINATED", "TRAINING",  "BLENDING",  "HOLDING",
    "FOSSILIZED", "PRUNED",     "EMBARGOED", "RESETTING",
};
constexpr std::array<const char*, kNumSeedOps> kOpNames{
    "WAIT", "GERMINATE", "SET_ALPHA_TARGET", "PRUNE", "FOSSILIZE", "ADVANCE",
};
constexpr std::array<const char*, kNumBlendOperators> kOperatorNames{"ADD", "MULTIPLY", "GATE"};
constexpr std::array<const char*, kNumBlendCurves> kCurveNames{
    "linear", "cosine", "sigmoid6", "sigmoid12", "sigmoid24",
};

// A value from a file may lie outside the enum.
template <size_t N, class E>
const char* name_in(const std::array<const char*, N>& names, E value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "?";
}

// False for NaN too.
bool within(float value, float low, float high) {
  return value >= low && value <= high;
}

std::optional<std::string> fault_without_seed(const SlotState& state) {
  SlotState expected;
  expected.stage = state.stage;
  if (state.blueprint != kNoBlueprint) return fmt::format("blueprint {} without a seed", state.blueprint);
  if (state.amplitude != 0 || state.ramp_start != 0 || state.target != 0)
    return fmt::format("amplitude {}, ramp start {}, target {} without a seed", state.amplitude,
                       state.ramp_start, state.target);
  if ((state.flags & ~kSlotBarred) != 0 || state.ramp_steps != 0 || state.ramp_done != 0)
    return "a ramp without a seed";
  if (state.age_steps != 0) return fmt::format("age {} without a seed", state.age_steps);
  if (state.blend_operator != expected.blend_operator || state.curve != expected.curve)
    return "a blend operator or curve without a seed";
  if (state.stage == SeedStage::kDormant && state.steps_in_stage != 0)
    return fmt::format("{} steps in DORMANT, which counts none", state.steps_in_stage);
  return std::nullopt;
}

std::optional<std::string> fault_of_ramp(const SlotState& state) {
  if (state.ramp_done < 0 || state.ramp_done >= state.ramp_steps)
    return fmt::format("{} of {} steps of a ramp under way", state.ramp_done, state.ramp_steps);
  const bool rises = state.ramp_start <= state.target;
  if (!within(state.amplitude, rises ? state.ramp_start : state.target,
              rises ? state.target : state.ramp_start))
    return fmt::format("amplitude {} outside its ramp from {} to {}", state.amplitude, state.ramp_start,
                       state.target);
  return std::nullopt;
}

std::optional<std::string> fault_with_seed(const SlotState& state) {
  const bool blended = state.stage >= SeedStage::kBlending;
  if (state.blueprint < 0) return "no blueprint";
  if (state.num_seeds < 1) return "a seed where none was counted";
  if (state.age_steps < state.steps_in_stage)
    return fmt::format("age {}, though {} steps in this stage", state.age_steps, state.steps_in_stage);
  if (state.stage == SeedStage::kGerminated && state.age_steps != 0)
    return fmt::format("age {} before it was trained", state.age_steps);
  if (is_removing(state)) {
    const bool arrived = is_moving(state) && state.amplitude == 0;
    if (state.stage != SeedStage::kBlending || state.target != 0 || !(is_ramping(state) || arrived))
      return "a removal that is not blending towards 0";
  } else if (!(state.target > 0)) {
    return "target 0, though it is not being removed";
  }
  if (!blended && (state.amplitude != 0 || state.ramp_start != 0 || state.ramp_done != 0 ||
                   (state.flags & ~kSlotBarred) != 0))
    return fmt::format("amplitude {} or a ramp before BLENDING", state.amplitude);
  if (is_moving(state) && (state.ramp_done < 1 || state.ramp_done > state.ramp_steps))
    return fmt::format("a moving amplitude after {} of {} steps of a ramp", state.ramp_done,
                       state.ramp_steps);
  if (is_ramping(state)) {
    if (state.stage == SeedStage::kFossilized) return "a ramp in FOSSILIZED";
    return fault_of_ramp(state);
  }
  if (blended && state.amplitude != state.target)
    return fmt::format("amplitude {} at rest away from its target {}", state.amplitude, state.target);
  return std::nullopt;
}

}  // namespace

const char* name_of(SeedStage stage) {
  return name_in(kStageNames, stage);
}

const char* name_of(SeedOp op) {
  return name_in(kOpNames, op);
}

const char* name_of(BlendOperator blend_operator) {
  return name_in(kOperatorNames, blend_operator);
}

const char* name_of(BlendCurve curve) {
  return name_in(kCurveNames, curve);
}

std::optional<std::string> fault_in(const SlotState& state) {
  if (static_cast<int>(state.stage) >= kNumSeedStages)
    return fmt::format("stage {} is none of {}", static_cast<int>(state.stage), kNumSeedStages);
  if (static_cast<int>(state.blend_operator) >= kNumBlendOperators)
    return fmt::format("blend operator {} is none of {}", static_cast<int>(state.blend_operator),
                       kNumBlendOperators);
  if (static_cast<int>(state.curve) >= kNumBlendCurves)
    return fmt::format("curve {} is none of {}", static_cast<int>(state.curve), kNumBlendCurves);
  if ((state.flags & ~(kSlotRamping | kSlotRemoving | kSlotMoving | kSlotBarred)) != 0)
    return fmt::format("unknown flags {:#x}", state.flags);
  for (const float value : {state.amplitude, state.ramp_start, state.target})
    if (!within(value, 0, 1)) return fmt::format("an amplitude of {}, outside 0 to 1", value);
  for (const int32_t count :
       {state.ramp_steps, state.ramp_done, state.age_steps, state.steps_in_stage, state.num_seeds})
    if (count < 0) return fmt::format("a negative count, {}", count);
  return holds_seed(state.stage) ? fault_with_seed(state) : fault_without_seed(state);
}

}  // namespace espalier
