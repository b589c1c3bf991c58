#include "espalier/train/step/metrics.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace espalier::train {

StepMetrics::StepMetrics(int64_t lanes, int64_t slots, at::Device device)
    : sums_(at::zeros({num_rows(slots), lanes}, at::TensorOptions(at::kDouble).device(device))),
      lanes_(at::arange(lanes, at::TensorOptions(at::kLong).device(device)).unsqueeze(0)) {}

void StepMetrics::clear() {
  sums_.zero_();
}

void StepMetrics::add_scores(const at::Tensor& losses, const at::Tensor& num_correct,
                             const at::Tensor& num_valid) {
  row(kLoss).add_(losses * num_valid);
  row(kCorrect).add_(num_correct);
  row(kValid).add_(num_valid);
}

void StepMetrics::add_host_norms(const at::Tensor& norms) {
  row(kNorm).add_(norms);
  at::Tensor largest = row(kLargestNorm);
  at::maximum_out(largest, largest, norms);
}

void StepMetrics::add_non_finite(const at::Tensor& lanes) {
  row(kNonFinite).add_(lanes);
}

void StepMetrics::add_loss_scale(const at::Tensor& skipped, const at::Tensor& scales) {
  row(kSkipped).add_(skipped);
  row(kScale).copy_(scales);
}

// A lane has one entry in all stacks of a slot at most, so the sum picks it. By selection, since an empty
// entry may hold anything.
void StepMetrics::add_seed_norms(const SeedNorms& norms) {
  for (size_t slot = 0; slot < norms.size(); ++slot)
    for (const StackNorms& stack : norms[slot]) {
      const at::Tensor is_there = stack.entries.unsqueeze(1) == lanes_;  // [E,L]
      row(kFirstSlot + static_cast<int64_t>(slot))
          .add_(at::where(is_there, stack.norms.unsqueeze(1), 0).sum(0));
    }
}

std::vector<LaneMetrics> StepMetrics::means(const at::Tensor& copied, int64_t num_steps) {
  const auto sums = copied.accessor<double, 2>();
  const auto steps = static_cast<double>(std::max<int64_t>(num_steps, 1));
  std::vector<LaneMetrics> lanes;
  for (int64_t lane = 0; lane < sums.size(1); ++lane) {
    const double samples = std::max(sums[kValid][lane], 1.0);
    LaneMetrics metrics{.loss = sums[kLoss][lane] / samples,
                        .accuracy = sums[kCorrect][lane] / samples,
                        .gradient_norm = sums[kNorm][lane] / steps,
                        .largest_norm = sums[kLargestNorm][lane],
                        .non_finite = static_cast<int64_t>(sums[kNonFinite][lane]),
                        .skipped = static_cast<int64_t>(sums[kSkipped][lane]),
                        .loss_scale = sums[kScale][lane]};
    for (int64_t slot = kFirstSlot; slot < sums.size(0); ++slot)
      metrics.slots.push_back(sums[slot][lane] / steps);
    lanes.push_back(std::move(metrics));
  }
  return lanes;
}

}  // namespace espalier::train
