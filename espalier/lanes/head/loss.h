// Cross entropy and accuracy of every lane.
//
// Kept true: lanes never mix, and a lane's bits are those it has alone; a masked sample, or one labelled
// -100, counts in nothing, whatever its logits hold; no host reads.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::lanes {

// logits [L,B,K] f32|f64|bf16|f16; labels [L,B] i64, 0 to K-1 or -100; mask [L,B] bool, or undefined.
// The mean over a lane's valid samples of -sum_k q_k log softmax(logits)_k, q the label, with the lane's
// share label_smoothing [L] f64, 0 to 1, spread over all classes (Szegedy et al., arXiv 1512.00567), as
// torch's; 0 for a lane with no samples. Undefined: no lane has a share. Its values are read where the logits
// are. sums [3,L] f64, dense, or undefined: += the mean times its samples, those whose largest logit is the
// label's, and samples; on CUDA by the same kernel. Returns [L] f64 for f64, else f32. Differentiable once,
// in logits.
at::Tensor lane_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask = {},
                              const at::Tensor& label_smoothing = {}, const at::Tensor& sums = {});

struct LaneAccuracy {
  at::Tensor num_correct;  // [L] i64: valid samples whose largest logit is the label's
  at::Tensor num_valid;    // [L] i64
};

// Arguments as lane_cross_entropy()'s.
LaneAccuracy lane_accuracy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask = {});

}  // namespace espalier::lanes
