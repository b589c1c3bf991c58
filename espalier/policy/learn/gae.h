// Generalised advantage estimation (Schulman et al., arXiv 1506.02438), lane by lane.
//
// Kept true: nothing flows backwards over the end of an episode; a true end is worth nothing afterwards, a
// truncation what the value function says of the state that would have followed.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::policy {

struct GaeOptions {
  double gamma = 0.995;
  double lambda = 0.95;
};

// All [L,T]; values and rewards in the same units.
struct GaeInput {
  at::Tensor rewards;    // f32
  at::Tensor values;     // f32: V of the state in which the step's action was chosen
  at::Tensor ended;      // bool: a true end after this step; wins over truncated
  at::Tensor truncated;  // bool: the episode was cut off after this step
  at::Tensor bootstrap;  // f32: V of the state after the step; read where truncated and in the last step
};

struct Gae {
  at::Tensor advantages;  // [L,T] f32
  at::Tensor returns;     // [L,T] f32: advantages + values
};

Gae estimate_advantages(const GaeInput& input, const GaeOptions& options);

}  // namespace espalier::policy
