// Gradients of every lane: taken, measured and clipped.
//
// Kept true: a lane's norm is over all its parameters and over nothing else; device tensors, no host reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/lanes/parameter.h"

namespace espalier::lanes {

// Writes the gradients of the sum of the losses, [L], each times its weight, [L] of their type, over those
// that the parameters have: in place, in their layout, zeros for a parameter that no loss depends on. What
// backward() would do, but nothing is added, so nothing has to be zeroed first; and backward() would lay
// gradients out again, or warn that a stack with gaps between its lanes does not meet torch's own layout
// contract. Undefined weights: 1, which a step that makes them once saves a launch.
void lane_backward(const at::Tensor& losses, const std::vector<LaneParameter*>& parameters,
                   const at::Tensor& weights = {});

// parameters: P x [L,...]. Returns [L], f64 on the CPU and for f64, else f32. Not finite where
// any gradient of the lane is not.
at::Tensor lane_gradient_norms(const std::vector<LaneParameter*>& parameters);

// Multiplies the gradients of each lane by min(1, max_norm / (norm + 1e-6)), as torch's clip_grad_norm_ does,
// in place. norms: [L], of lane_gradient_norms(); max_norms: [L] f64, 0: any. A lane whose norm is not finite
// ends up not finite.
void clip_lane_gradients_(const std::vector<LaneParameter*>& parameters, const at::Tensor& norms,
                          const at::Tensor& max_norms);

// Multiplies the gradients of each lane by its factor, [L] of floats, in place.
void scale_lane_gradients_(const std::vector<LaneParameter*>& parameters, const at::Tensor& factors);

}  // namespace espalier::lanes
