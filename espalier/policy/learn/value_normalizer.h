// Keeps the values that a network has to learn near 0 and 1, however large returns are (van Hasselt et al.,
// arXiv 1602.07714).
//
// Kept true: lives on the policy's device and is never read on the host; when it moves, the value head moves
// with it, so that what the network says of a state, in units of rewards, stays the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "espalier/policy/network.h"

namespace espalier::policy {

class ValueNormalizer {
 public:
  // decay: of what is known, at each update; returns drift as the policy learns.
  explicit ValueNormalizer(const at::TensorOptions& tensors, double decay = 0.9);

  // Takes the returns [L,T] that count [L,T] into mean and deviation, and rescales the value head.
  void update(const at::Tensor& returns, const at::Tensor& counts, const PolicyNetwork& network);

  at::Tensor normalise(const at::Tensor& values) const;    // units of rewards -> the network's
  at::Tensor denormalise(const at::Tensor& values) const;  // and back

  std::vector<NamedTensor> state() const;  // what a checkpoint holds

 private:
  at::Tensor mean() const;       // [] f64; 0 before the first update
  at::Tensor deviation() const;  // [] f64; 1 before the first update

  double decay_;
  at::Tensor sum_;     // [] f64: decayed sum of means
  at::Tensor square_;  // [] f64: and of means of squares
  at::Tensor weight_;  // [] f64: and of ones, by which both are divided: the first update counts in full
};

}  // namespace espalier::policy
