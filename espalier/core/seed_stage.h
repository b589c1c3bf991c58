// What the growing networks and the policy must agree on: the stages of a seed, what may be asked in each,
// and the packed state of a slot. Shared by the CPU and by kernels that compute masks and observations from
// it.
//
// Kept true: the integer values are part of saved files and of the policy's one-hot inputs and never change;
// next_stages() is the only table of transitions and ops_in() the only one of what may be asked; SlotState
// has no padding, so states can be copied to a device, saved and compared as bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "espalier/core/host_device.h"

namespace espalier {

enum class SeedStage : uint8_t {
  kDormant = 0,     // no seed
  kGerminated = 1,  // built, not trained yet
  kTraining = 2,    // learns beside the host, which does not feel it
  kBlending = 3,    // its amplitude moves; with kSlotRemoving, towards 0
  kHolding = 4,     // blended in; may be retargeted
  kFossilized = 5,  // part of the network for good
  kPruned = 6,      // removed
  kEmbargoed = 7,   // the slot cools down
  kResetting = 8,   // the last step before the slot is free again
};
inline constexpr int kNumSeedStages = 9;

// What a controller may ask of a lane in a step.
enum class SeedOp : uint8_t {
  kWait = 0,
  kGerminate = 1,
  kSetAmplitudeTarget = 2,
  kPrune = 3,
  kFossilize = 4,
  kAdvance = 5,
};
inline constexpr int kNumSeedOps = 6;

// h: what the host carries at the slot; s: the seed's output; a: the amplitude; g: a learned gate.
enum class BlendOperator : uint8_t {
  kAdd = 0,       // h + a (s - h)
  kMultiply = 1,  // h (1 + a tanh(s - seed input))
  kGate = 2,      // h + a g(x) (s - h)
};
inline constexpr int kNumBlendOperators = 3;

enum class BlendCurve : uint8_t {
  kLinear = 0,
  kCosine = 1,
  kSigmoid6 = 2,  // the number is the steepness
  kSigmoid12 = 3,
  kSigmoid24 = 4,
};
inline constexpr int kNumBlendCurves = 5;

// Bits of SlotState::flags.
inline constexpr uint8_t kSlotRamping = 1;   // the amplitude is on its way to the target
inline constexpr uint8_t kSlotRemoving = 2;  // scheduled removal: the seed's parameters are frozen
// The amplitude moves, batch by batch, in the epoch under way (between epochs: moved in the last one), by the
// step of its ramp that ends at ramp_done. The state's amplitude is the one at the epoch's end.
inline constexpr uint8_t kSlotMoving = 4;
// What was done here made the lane collapse, and may not be repeated in this episode: nothing is planted,
// pruned or retargeted in the slot. Stays while seeds come and go.
inline constexpr uint8_t kSlotBarred = 8;

inline constexpr int32_t kNoBlueprint = -1;

// One slot of one lane. A step is an epoch of training; counts include the one now under way.
struct SlotState {
  SeedStage stage = SeedStage::kDormant;
  BlendOperator blend_operator = BlendOperator::kAdd;
  BlendCurve curve = BlendCurve::kLinear;
  uint8_t flags = 0;
  int32_t blueprint = kNoBlueprint;  // index in the registry
  float amplitude = 0;               // a, in [0, 1]; at the end of the step under way
  float ramp_start = 0;              // a when the ramp began
  float target = 0;                  // where a goes; before BLENDING: where it will go
  int32_t ramp_steps = 0;            // length of the ramp; before BLENDING: the tempo it will have
  int32_t ramp_done = 0;
  int32_t age_steps = 0;       // since germination
  int32_t steps_in_stage = 0;  // stays 0 in DORMANT
  int32_t num_seeds = 0;       // germinated in this slot so far, the present one included
};
static_assert(sizeof(SlotState) == 4 + 4 + 3 * sizeof(float) + 5 * 4, "no padding: compared as bytes");
static_assert(std::is_trivially_copyable_v<SlotState> && std::is_standard_layout_v<SlotState>);

// One lane's decision: the interface of every controller. An op reads its own fields only: GERMINATE all of
// them; SET_ALPHA_TARGET all but the blueprint; PRUNE slot, curve and steps; FOSSILIZE and ADVANCE the slot.
struct SeedAction {
  SeedOp op = SeedOp::kWait;
  int32_t slot = 0;
  int32_t blueprint = kNoBlueprint;
  BlendOperator blend_operator = BlendOperator::kAdd;
  BlendCurve curve = BlendCurve::kLinear;
  int32_t steps = 0;  // the tempo (GERMINATE) or the speed; 0: at once
  float target = 1;
};

ESPALIER_HOST_DEVICE constexpr uint32_t bit_of(SeedStage stage) {
  return 1u << static_cast<uint32_t>(stage);
}
ESPALIER_HOST_DEVICE constexpr uint32_t bit_of(SeedOp op) {
  return 1u << static_cast<uint32_t>(op);
}

// The stages that may follow, as bits. A switch and not an array: a kernel cannot index a host's array.
ESPALIER_HOST_DEVICE constexpr uint32_t next_stages(SeedStage stage) {
  switch (stage) {
    case SeedStage::kDormant:
      return bit_of(SeedStage::kGerminated);
    case SeedStage::kGerminated:
      return bit_of(SeedStage::kTraining) | bit_of(SeedStage::kPruned);
    case SeedStage::kTraining:
      return bit_of(SeedStage::kBlending) | bit_of(SeedStage::kPruned);
    case SeedStage::kBlending:
      return bit_of(SeedStage::kHolding) | bit_of(SeedStage::kPruned);
    case SeedStage::kHolding:  // back to BLENDING for a scheduled removal
      return bit_of(SeedStage::kFossilized) | bit_of(SeedStage::kBlending) | bit_of(SeedStage::kPruned);
    case SeedStage::kFossilized:
      return 0;
    case SeedStage::kPruned:
      return bit_of(SeedStage::kEmbargoed);
    case SeedStage::kEmbargoed:
      return bit_of(SeedStage::kResetting);
    case SeedStage::kResetting:
      return bit_of(SeedStage::kDormant);
  }
  return 0;
}

ESPALIER_HOST_DEVICE constexpr bool may_follow(SeedStage from, SeedStage to) {
  return (next_stages(from) & bit_of(to)) != 0;
}

// What may be asked of a slot in this stage, as bits of SeedOp. Whether it then happens is a gate's matter.
ESPALIER_HOST_DEVICE constexpr uint32_t ops_in(SeedStage stage) {
  switch (stage) {
    case SeedStage::kDormant:
      return bit_of(SeedOp::kWait) | bit_of(SeedOp::kGerminate);
    case SeedStage::kGerminated:
      return bit_of(SeedOp::kWait) | bit_of(SeedOp::kPrune);
    case SeedStage::kTraining:
    case SeedStage::kBlending:
      return bit_of(SeedOp::kWait) | bit_of(SeedOp::kAdvance) | bit_of(SeedOp::kPrune);
    case SeedStage::kHolding:
      return bit_of(SeedOp::kWait) | bit_of(SeedOp::kSetAmplitudeTarget) | bit_of(SeedOp::kFossilize) |
             bit_of(SeedOp::kPrune);
    case SeedStage::kFossilized:
    case SeedStage::kPruned:
    case SeedStage::kEmbargoed:
    case SeedStage::kResetting:
      return bit_of(SeedOp::kWait);
  }
  return 0;
}

ESPALIER_HOST_DEVICE constexpr bool holds_seed(SeedStage stage) {
  return stage >= SeedStage::kGerminated && stage <= SeedStage::kFossilized;
}

// Between a removal and the day the slot is free again.
ESPALIER_HOST_DEVICE constexpr bool is_cleaning_up(SeedStage stage) {
  return stage >= SeedStage::kPruned && stage <= SeedStage::kResetting;
}

// Whether a slot in this stage keeps its whole lane from planting: a seed there is new and not felt yet, or
// one was just removed. So a lane's accuracy tells about one change at a time.
ESPALIER_HOST_DEVICE constexpr bool forbids_planting(SeedStage stage) {
  return stage == SeedStage::kGerminated || stage == SeedStage::kTraining || is_cleaning_up(stage);
}

ESPALIER_HOST_DEVICE constexpr bool is_ramping(const SlotState& state) {
  return (state.flags & kSlotRamping) != 0;
}
ESPALIER_HOST_DEVICE constexpr bool is_removing(const SlotState& state) {
  return (state.flags & kSlotRemoving) != 0;
}
ESPALIER_HOST_DEVICE constexpr bool is_moving(const SlotState& state) {
  return (state.flags & kSlotMoving) != 0;
}
ESPALIER_HOST_DEVICE constexpr bool is_barred(const SlotState& state) {
  return (state.flags & kSlotBarred) != 0;
}

// Whether the seed takes part in what its network computes: one that only learns beside it does not.
ESPALIER_HOST_DEVICE constexpr bool is_felt(const SlotState& state) {
  return state.stage >= SeedStage::kBlending && state.stage <= SeedStage::kFossilized && state.amplitude > 0;
}

// Whether there is something to decide about a seed that something goes through, so that a network without it
// says something. A fossilised one is not measured: whether there is such a network would depend on other
// lanes.
ESPALIER_HOST_DEVICE constexpr bool is_undecided(const SlotState& state) {
  return holds_seed(state.stage) && state.stage != SeedStage::kFossilized && state.amplitude > 0;
}

// What a barred slot may not be asked.
inline constexpr uint32_t kBarredOps =
    bit_of(SeedOp::kGerminate) | bit_of(SeedOp::kPrune) | bit_of(SeedOp::kSetAmplitudeTarget);

// Whether a controller may choose the op for this slot: a mask, slot by slot (what concerns a whole lane,
// such as the most seeds it may hold, comes on top). The lifecycle refuses nothing that this allows, whatever
// the other fields of the action are; it also prunes at once what is new or mid-ramp, for those who must.
ESPALIER_HOST_DEVICE constexpr bool may_choose(const SlotState& state, SeedOp op) {
  if ((ops_in(state.stage) & bit_of(op)) == 0) return false;
  if (is_barred(state) && (kBarredOps & bit_of(op)) != 0) return false;
  return op != SeedOp::kPrune || (state.age_steps >= 1 && !is_ramping(state));
}

// As the documentation spells them: "FOSSILIZED", "SET_ALPHA_TARGET", "MULTIPLY", "sigmoid12"; "?" where the
// value is none of the enum's.
const char* name_of(SeedStage stage);
const char* name_of(SeedOp op);
const char* name_of(BlendOperator blend_operator);
const char* name_of(BlendCurve curve);

// What is wrong with a state that no lifecycle can have produced (one read from a file), in a few words;
// nothing for a sound one.
std::optional<std::string> fault_in(const SlotState& state);

}  // namespace espalier
