// How the branches of a seed part and meet again: forks, residual sums, learned mixes and scales.
//
// Kept true: entries never mix, and an entry's bits are those it has alone; outputs and gradients are born
// stacked, in x's memory format. (torch's own sums would close the gaps between lanes, and CPU kernels round
// by alignment; its tanh and sigmoid round differently in a vector and at its tail.) Arithmetic is in f32,
// f64 for f64, and rounded once. Differentiable once. Empty entries (lanes/active.h) are left out. On CUDA a
// pass is one kernel, and one more where it sums over a whole entry.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace espalier::grow {

// x twice, where two branches begin: their gradients are added here and not by autograd.
std::pair<at::Tensor, at::Tensor> lane_fork(const at::Tensor& x);

// x + y. x, y: [E,B,C,H,W] of one type.
at::Tensor lane_residual(const at::Tensor& x, const at::Tensor& y);

// x + t (y - x). t: [E,1].
at::Tensor lane_mix(const at::Tensor& x, const at::Tensor& y, const at::Tensor& t);

// x times one factor per sample and channel. scale: [E,B,C].
at::Tensor lane_scale(const at::Tensor& x, const at::Tensor& scale);

enum class Curve { kRelu, kSigmoid, kTanh };

// [E,...], value by value.
at::Tensor lane_curve(const at::Tensor& x, Curve curve);

}  // namespace espalier::grow
