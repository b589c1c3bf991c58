// The life of seeds: the state machine of every lane and slot, on the host, in plain packed states.
//
// Kept true: a stage changes only along next_stages(); what ops_in() does not list for a stage is refused
// with an error and changes nothing, and so does a gate that fails, which is no error; an operation on a lane
// leaves the bytes of every other lane as they were; fault_in() finds nothing in any state.
//
// Time moves in begin_epoch() alone, before the epoch is trained: so GERMINATED begins TRAINING with the
// epoch that trains it first, and between epochs the counts of steps are those of epochs trained. A state's
// amplitude is the one at the end of its epoch: within it, kSlotMoving says, it moves batch by batch along
// its curve (blend/amplitude_moves.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/gates.h"

namespace espalier::grow {

struct LifecycleOptions {
  int64_t lanes = 1;
  std::vector<std::string> slots;  // names, in the order of action indices
  int32_t num_blueprints = 0;      // in the registry
  int32_t embargo_steps = 5;       // epochs that a slot cools down after a removal, at least 1
  GateOptions gates;
};

// What a new seed is. Incomplete where it keeps these defaults: gate G0 wants a blueprint.
struct Germination {
  int32_t blueprint = kNoBlueprint;
  BlendOperator blend_operator = BlendOperator::kAdd;
  BlendCurve curve = BlendCurve::kLinear;
  int32_t tempo_steps = 5;  // that the blend takes, once it is trained
  float target = 1;         // where the blend ends, in (0, 1]
};

struct Retarget {
  float target = 1;   // in (0, 1]; towards 0 is a removal: prune()
  int32_t steps = 0;  // 0: at once
  BlendCurve curve = BlendCurve::kLinear;
  BlendOperator blend_operator = BlendOperator::kAdd;
};

struct Removal {
  int32_t steps = 0;  // 0: at once; else scheduled, over so many steps
  BlendCurve curve = BlendCurve::kLinear;
};

// A change of stage.
struct StageMove {
  int64_t lane = 0;
  int64_t slot = 0;
  SeedStage from = SeedStage::kDormant;
  SeedStage to = SeedStage::kDormant;
  int32_t blueprint = kNoBlueprint;  // that of the seed that moved, also where it is gone now
};

class Lifecycle {
 public:
  explicit Lifecycle(LifecycleOptions options);

  const LifecycleOptions& options() const { return options_; }
  int64_t num_lanes() const { return options_.lanes; }
  int64_t num_slots() const { return static_cast<int64_t>(options_.slots.size()); }

  // [lanes, slots], lane first: as it is copied to a device.
  std::span<const SlotState> states() const { return states_; }
  std::span<const SlotState> lane_states(int64_t lane) const;  // [slots]
  const SlotState& at(int64_t lane, int64_t slot) const { return states_[index_of(lane, slot)]; }

  // DORMANT -> GERMINATED, by G0.
  GateReport germinate(int64_t lane, int64_t slot, const Germination& germination);
  // TRAINING -> BLENDING by G2, or BLENDING -> HOLDING by G3.
  GateReport advance(int64_t lane, int64_t slot, const SeedMeasurements& measured);
  // In HOLDING, which it stays in while the amplitude moves; from where that is, also mid-ramp.
  void set_amplitude_target(int64_t lane, int64_t slot, const Retarget& retarget);
  // To PRUNED, at once where no steps are given or the amplitude is 0. Else a scheduled removal: BLENDING
  // towards 0, and PRUNED by itself in the epoch after the one in which it arrives; from HOLDING, or from
  // BLENDING that reached its target.
  void prune(int64_t lane, int64_t slot, const Removal& removal = {});
  // A scheduled removal that is under way is called off: HOLDING, at the amplitude that it has come down to.
  void keep(int64_t lane, int64_t slot);
  // HOLDING -> FOSSILIZED, by G5.
  GateReport fossilize(int64_t lane, int64_t slot, const SeedMeasurements& measured);

  // What was done in the slot made the lane collapse: until reset_lane() no controller may plant, prune or
  // retarget there (may_choose()). Whoever calls prune() itself still may.
  void bar(int64_t lane, int64_t slot);

  // Any of these but keep() and bar() from a controller's decision. The report is of no gate where none was
  // passed.
  GateReport act(int64_t lane, const SeedAction& action, const SeedMeasurements& measured);

  // One step of time, before the epoch is trained: amplitudes move; GERMINATED -> TRAINING by G1; a removal
  // that arrived -> PRUNED; PRUNED -> EMBARGOED; EMBARGOED -> RESETTING after its steps; RESETTING ->
  // DORMANT. At most one change of stage per slot; returned in the order of lanes, then slots.
  std::vector<StageMove> begin_epoch();
  // The same for one lane: where others are retired or frozen.
  std::vector<StageMove> begin_epoch(int64_t lane);

  // All slots of the lane as at construction: a new episode.
  void reset_lane(int64_t lane);
  // Back to states that lane_states() gave, or that were saved; refused where one of them is not sound.
  void restore_lane(int64_t lane, std::span<const SlotState> states);

 private:
  size_t index_of(int64_t lane, int64_t slot) const;
  std::string place(int64_t lane, int64_t slot) const;
  SlotState& state_for(SeedOp op, int64_t lane, int64_t slot);
  void check_ramp(SeedOp op, int64_t lane, int64_t slot, int32_t steps, BlendCurve curve) const;
  void step_lane(int64_t lane, std::vector<StageMove>& moves);

  LifecycleOptions options_;
  std::vector<SlotState> states_;  // [lanes, slots]
};

}  // namespace espalier::grow
