// Seeds that lanes hold, counted from their stages alone: what the observer counts among other things.
#pragma once

#include <ATen/ATen.h>

#include "espalier/core/seed_stage.h"

namespace espalier::policy::testing {

// Those kept for good included. stage: [L,S] i64. Returns [L] i64.
inline at::Tensor num_seeds_of(const at::Tensor& stage) {
  return (stage.ge(static_cast<int64_t>(SeedStage::kGerminated)) &
          stage.le(static_cast<int64_t>(SeedStage::kFossilized)))
      .sum(1);
}

}  // namespace espalier::policy::testing
