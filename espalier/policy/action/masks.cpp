#include "espalier/policy/action/masks.h"

#include <ATen/ATen.h>

namespace espalier::policy {
namespace {

constexpr int64_t kNoStage = kNumSeedStages;

// Any number outside the enum as kNoStage.
at::Tensor known_stage(const at::Tensor& stage) {
  return at::where(stage.lt(0), kNoStage, stage.clamp_max(kNoStage));
}

at::Tensor for_op(const at::Tensor& by_op, SeedOp op) {
  return by_op.select(-1, static_cast<int64_t>(op));
}

void check_field(const at::Tensor& field, const char* name, at::IntArrayRef sizes, at::ScalarType type) {
  TORCH_CHECK(field.defined() && field.sizes() == sizes && field.scalar_type() == type, "masks_of: ", name,
              ": want ", sizes, " ", type, ", got ", field.sizes(), " ", field.scalar_type());
}

}  // namespace

MaskRules::MaskRules(const ActionSpace& space, const at::Tensor& enabled_slots, int64_t max_seeds)
    : enabled_slots_(enabled_slots), num_slots_(space.num_slots), max_seeds_(max_seeds) {
  TORCH_CHECK(enabled_slots.dim() >= 1 && enabled_slots.dim() <= 2 &&
                  enabled_slots.size(-1) == space.num_slots && enabled_slots.scalar_type() == at::kBool,
              "MaskRules: enabled_slots: want [", space.num_slots, "] or [L,", space.num_slots,
              "] Bool, got ", enabled_slots.sizes(), " ", enabled_slots.scalar_type());
  TORCH_CHECK(max_seeds >= 0, "MaskRules: max_seeds: want 0 or more, got ", max_seeds);
  TORCH_CHECK(space.num_blueprints > kNoopBlueprint + 1,
              "MaskRules: num_blueprints: want 2 or more, since noop is never chosen, got ",
              space.num_blueprints);
  const at::Tensor ops = at::zeros({kNoStage + 1, kNumSeedOps}, at::kBool);
  const at::Tensor busy = at::zeros({kNoStage + 1}, at::kBool);
  for (int64_t i = 0; i < kNumSeedStages; ++i) {
    const auto stage = static_cast<SeedStage>(i);
    busy[i] = forbids_planting(stage);
    for (int64_t op = 0; op < kNumSeedOps; ++op)
      ops[i][op] = (ops_in(stage) & bit_of(static_cast<SeedOp>(op))) != 0;
  }
  ops_in_ = ops.to(enabled_slots.device());
  new_or_leaving_ = busy.to(enabled_slots.device());
  const at::Tensor blueprints = at::ones({space.num_blueprints}, at::kBool);
  blueprints[kNoopBlueprint] = false;
  blueprints_ = blueprints.to(enabled_slots.device());
}

ActionMasks MaskRules::masks_of(const SlotFields& slots) const {
  const int64_t lanes = slots.stage.size(0);
  const int64_t sizes[] = {lanes, num_slots_};
  check_field(slots.stage, "stage", sizes, at::kLong);
  check_field(slots.flags, "flags", sizes, at::kLong);
  check_field(slots.age_steps, "age_steps", sizes, at::kLong);
  check_field(slots.num_seeds, "num_seeds", {lanes}, at::kLong);

  const at::Tensor stage = known_stage(slots.stage);  // [L,S]
  at::Tensor slot = ops_in_.index_select(0, stage.flatten()).view({lanes, num_slots_, kNumSeedOps});
  const at::Tensor busy = new_or_leaving_.index_select(0, stage.flatten()).view({lanes, num_slots_});

  const at::Tensor has_room = busy.any(1).logical_not() & slots.num_seeds.lt(max_seeds_);  // [L]
  for_op(slot, SeedOp::kGerminate).logical_and_(enabled_slots_ & has_room.unsqueeze(1));
  const at::Tensor ramping = slots.flags.bitwise_and(static_cast<int64_t>(kSlotRamping)).ne(0);
  for_op(slot, SeedOp::kPrune).logical_and_(slots.age_steps.ge(1) & ramping.logical_not());

  const at::Tensor open = slots.flags.bitwise_and(static_cast<int64_t>(kSlotBarred)).eq(0);
  for (int64_t i = 0; i < kNumSeedOps; ++i)
    if (const auto each = static_cast<SeedOp>(i); (kBarredOps & bit_of(each)) != 0)
      for_op(slot, each).logical_and_(open);

  // WAIT names no slot: it is legal where no slot forbids it, and so is any op in such a lane alone.
  const at::Tensor sound = for_op(slot, SeedOp::kWait).all(1, /*keepdim=*/true);  // [L,1]
  at::Tensor op = slot.any(1) & sound;                                            // [L,6]
  for_op(op, SeedOp::kWait).copy_(sound.squeeze(1));
  if (slots.frozen.defined()) {
    check_field(slots.frozen, "frozen", {lanes}, at::kBool);
    op.slice(1, 1).logical_and_(slots.frozen.logical_not().unsqueeze(1));
  }
  slot = slot.transpose(1, 2) & op.unsqueeze(2);  // [L,6,S]
  return {.op = op, .slot = slot, .illegal_state = op.any(1).logical_not()};
}

}  // namespace espalier::policy
