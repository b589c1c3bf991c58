#include "espalier/train/step/metrics.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace espalier::train {

StepMetrics::StepMetrics(int64_t lanes, int64_t slots, at::Device device)
    : sums_(at::zeros({num_rows(slots), lanes}, at::TensorOptions(at::kDouble).device(device))),
      is_whole_(at::ones({lanes}, at::TensorOptions(at::kBool).device(device))) {}

void StepMetrics::clear() {
  sums_.zero_();
}

at::Tensor StepMetrics::scores() const {
  static_assert(kCorrect == kLoss + 1 && kValid == kLoss + 2);
  return sums_.narrow(0, kLoss, 3);
}

void StepMetrics::set_loss_scales(const at::Tensor& scales) {
  row(kScale).copy_(scales);
}

lanes::UpdateSums StepMetrics::update_sums() const {
  return {.norms = row(kNorm),
          .largest_norms = row(kLargestNorm),
          .non_finite = row(kNonFinite),
          .skipped = row(kSkipped),
          .is_whole = is_whole_};
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
