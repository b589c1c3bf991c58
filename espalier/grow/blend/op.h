// The way into a slot's seeds and back: lanes gathered into entries, and blended into the host's stream.
//
// Kept true:
// - A lane that holds no seed passes bit for bit, forward and backward; so does one whose amplitude is 0, by
//   selection and not by arithmetic, whatever the seed's output is (NaN included).
// - An isolated lane (TRAINING) gives its seed a detached input, returns h itself and hands the gradient on
//   to both h and the seed: h + (s - stop_gradient(s)) in meaning, the host's own bits in fact.
// - No host reads, no atomics: gathers only, by both tables. Arithmetic is in f32 (f64 for f64) and rounded
//   once.
// - h has one consumer: its two gradients are added here, lane by lane, in the layout of a stack, and not by
//   autograd.
// - One pass does all stacks of a slot, and an empty entry costs next to nothing: neither its input nor its
//   gradients are written. Where nobody else holds h, or a gradient, it becomes the result: lanes without a
//   seed then cost nothing either.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace espalier::grow {

// What both ops read of a stack's lanes; dense, where h is. E entries, L lanes.
struct BlendTable {
  at::Tensor entries;         // [E] i64: the lane of each entry, -1 empty
  at::Tensor entry_of_lane;   // [L] i64: the entry of each lane, -1 none here
  at::Tensor amplitude;       // [L] f32: a, in [0, 1]
  at::Tensor blend_operator;  // [L] u8: BlendOperator
  at::Tensor isolated;        // [L] bool: in TRAINING
};

struct Selected {
  at::Tensor through;  // [L,B,C,H,W]: h, to be blended
  at::Tensor input;    // [E,B,C,H,W]: the lanes of the entries; anything where an entry is empty
};

// h: [L,B,C,H,W] with lanes of either memory format.
Selected lane_select(const at::Tensor& h, const BlendTable& table);

// h: [L,B,C,H,W], the `through` of lane_select(); seeds: [E,B,C,H,W], what the seeds made of `input`;
// gates: [E,B] f32|f64, or undefined where no lane's operator is GATE.
//   ADD h + a (s - h), MULTIPLY h (1 + a tanh(s - h)), since h is the seed's input, GATE h + a g (s - h).
// Returns [L,B,C,H,W] as h lies.
at::Tensor lane_blend(const at::Tensor& h, const at::Tensor& seeds, const at::Tensor& gates,
                      const BlendTable& table);

// The same for all stacks of a slot. A lane is in one of them at most; their tables have the slot's
// coefficients in common.
struct SelectedAll {
  at::Tensor through;
  std::vector<at::Tensor> inputs;  // one per stack
};
SelectedAll lane_select(const at::Tensor& h, const std::vector<BlendTable>& tables);

struct Grown {
  at::Tensor seeds, gates;  // as lane_blend() takes them
  BlendTable table;
  at::Tensor input = {};  // [E,B,C,H,W]: what lane_select() gave the stack; undefined: h is kept instead
};
// h: handed over; see above.
at::Tensor lane_blend(at::Tensor h, const std::vector<Grown>& stacks);

}  // namespace espalier::grow
