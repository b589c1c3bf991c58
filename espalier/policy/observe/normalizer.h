// Brings every feature near 0 and 1, by mean and deviation over all rounds that were played to learn.
//
// Kept true: lives on the policy's device and is never read on the host; within a round it does not move:
// what is collected counts from the next publish() on; what comes out is within [-10,10], also for a feature
// that never varied and before anything was collected, when it changes nothing else.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/policy/network.h"

namespace espalier::policy {

class ObservationNormalizer {
 public:
  ObservationNormalizer(int64_t num_features, const at::TensorOptions& tensors);

  // features: [L,F]; counts: [L] bool. Changes nothing yet. Finite where it counts.
  void collect(const at::Tensor& features, const at::Tensor& counts);
  // From here on with all that was collected.
  void publish();

  at::Tensor normalise(const at::Tensor& features) const;  // [...,F]

  std::vector<NamedTensor> state() const;  // what a checkpoint holds

 private:
  at::Tensor num_;      // [] f64: steps of lanes collected
  at::Tensor mean_;     // [F] f64 of them
  at::Tensor squares_;  // [F] f64: sum of squared distances from the mean
  at::Tensor shift_;    // [F] f32: what is subtracted, until the next publish()
  at::Tensor scale_;    // [F] f32: and then multiplied with
};

}  // namespace espalier::policy
