// What every lane may choose, for all lanes at once, from the packed state of their slots.
//
// Kept true: only the impossible is forbidden, never the unwise; slot by slot the rules are may_choose()'s,
// read from ops_in(); an op is legal exactly where a slot is legal for it; masks_of() reads nothing on the
// host and copies nothing from it, so it can be captured.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "espalier/policy/action/space.h"

namespace espalier::policy {

// The fields of SlotState that decide, one tensor each, on the rules' device.
struct SlotFields {
  at::Tensor stage;      // [L,S] i64, by the numbers of SeedStage
  at::Tensor flags;      // [L,S] i64
  at::Tensor age_steps;  // [L,S] i64
  at::Tensor num_seeds;  // [L] i64: what counts against max_seeds, kept ones included
  at::Tensor frozen;     // [L] bool: these may only wait, until the round ends; or undefined: none
};

struct ActionMasks {
  at::Tensor op;             // [L,6] bool
  at::Tensor slot;           // [L,6,S] bool: the slots that an op may name
  at::Tensor illegal_state;  // [L] bool: no action is legal, not even WAIT: no lifecycle makes such a state
};

class MaskRules {
 public:
  // enabled_slots: [S] or [L,S] bool, where seeds may be planted; the masks are made on its device.
  MaskRules(const ActionSpace& space, const at::Tensor& enabled_slots, int64_t max_seeds);

  ActionMasks masks_of(const SlotFields& slots) const;

  const at::Tensor& blueprints() const { return blueprints_; }  // [num_blueprints] bool: all but noop

 private:
  at::Tensor enabled_slots_;   // [S] or [L,S] bool
  at::Tensor ops_in_;          // [stages + 1, 6] bool; the last row, for what is no stage, allows nothing
  at::Tensor new_or_leaving_;  // [stages + 1] bool: forbids_planting()
  at::Tensor blueprints_;      // [num_blueprints] bool
  int64_t num_slots_;
  int64_t max_seeds_;
};

}  // namespace espalier::policy
