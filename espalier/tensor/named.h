// A tensor and the name that a checkpoint keeps it under.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace espalier {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace espalier
