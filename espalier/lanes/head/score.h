// What a batch says about every lane, added to sums over a split.
//
// Kept true: samples are added one by one in their order, in f64, so the sums over a split do not depend on
// how it is cut into batches, bit for bit; a sample labelled -100 counts in nothing; lanes never mix; no host
// reads.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::lanes {

// sums [3,L] f64, contiguous: += cross entropy, hits (the largest logit is the label's), samples.
// logits [L,B,K] of floats; labels [L,B] i64, 0 to K-1 or -100, expanded over lanes or not. A label out of
// range makes a lane's cross entropy NaN.
void add_lane_scores_(const at::Tensor& sums, const at::Tensor& logits, const at::Tensor& labels);

}  // namespace espalier::lanes
