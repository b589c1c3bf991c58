// Adam (Kingma and Ba, arXiv 1412.6980) whose steps a device may refuse.
//
// Kept true: a refused step leaves parameters and moments as they were, to the bit, though its gradients be
// NaN; nothing is read on the host, the count of steps included.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/policy/network.h"

namespace espalier::policy {

struct AdamOptions {
  double learning_rate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-5;  // as PPO implementations have it, not torch's 1e-8
};

class Adam {
 public:
  Adam(std::vector<NamedTensor> parameters, const AdamOptions& options);

  // gradients: one for each parameter, in their order; apply: [] bool.
  void step(const std::vector<at::Tensor>& gradients, const at::Tensor& apply);

  std::vector<NamedTensor> state() const;  // what a checkpoint holds

 private:
  std::vector<NamedTensor> parameters_;
  std::vector<at::Tensor> first_;   // like each parameter
  std::vector<at::Tensor> second_;  // like each parameter
  at::Tensor num_steps_;            // [] f64
  AdamOptions options_;
};

// Scales all gradients, in place, so that their norm together is at most `most`. Returns the norm before: []
// f32.
at::Tensor clip_gradients_(const std::vector<at::Tensor>& gradients, double most);

}  // namespace espalier::policy
