// Batch norm of a batch that several processes share out: statistics are those of the whole batch.
//
// Kept true: what layer.h does with the whole batch in one place, but for rounding: every process takes the
// sums of its part, and these are added up over all of them. Every process calls the same norms in the same
// order. Two sums per norm forward (means, then squared differences: nothing is lost to cancellation), one
// backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "espalier/lanes/norm/layer.h"

namespace espalier::lanes {

// Adds a dense tensor up over all processes, in place, to the same bits at each.
using SumOverAll = std::function<void(const at::Tensor& values)>;

// As lane_batch_norm2d(), over the parts of all processes. By torch's operators on every device: the kernels
// take their sums and use them in one launch, with no place between for another process.
at::Tensor synced_batch_norm2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               const BatchNormCall& call, const SumOverAll& sum_over_all);

// A layer's norm: synced, or by itself where there is no sum over all processes.
at::Tensor batch_norm_forward(const LaneBatchNorm2d& norm, const at::Tensor& x, const BatchNormCall& call,
                              const SumOverAll& sum_over_all);

// The sum itself, differentiable: with L the sum of all processes' losses, the gradient of L.
at::Tensor summed_over_all(const at::Tensor& own, const SumOverAll& sum_over_all);

}  // namespace espalier::lanes
