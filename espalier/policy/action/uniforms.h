// The uniform numbers of a step, one for each choice of each lane: what ActionSampler draws with.
//
// Kept true: a number depends on (seed, round, step, lane, choice) alone, on every device and whatever other
// lanes there are; round and step are read on the device, so a captured step draws new numbers when it is
// replayed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace espalier::policy {

// round, step: [1] i64. Returns [lanes,choices] f32 in [0,1) on their device.
at::Tensor choice_uniforms(uint64_t seed, const at::Tensor& round, const at::Tensor& step, int64_t lanes,
                           int64_t choices);

}  // namespace espalier::policy
