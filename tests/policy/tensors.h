// Small tensors for tests.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace espalier::policy::testing {

inline at::Tensor bools(const std::vector<int64_t>& values) {
  return at::tensor(values).to(at::kBool);
}

inline at::Tensor floats(const std::vector<double>& values) {
  return at::tensor(values, at::kFloat);
}

inline at::Tensor doubles(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

}  // namespace espalier::policy::testing
