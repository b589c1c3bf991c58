// A stacked parameter: the master values with their gradient, and the copy that layers compute with.
//
// Kept true: values, gradient and compute copy lie in memory alike (stack.h), from birth on, and never
// move: use_lanes() shows more or fewer entries of the same storage, so a captured step stays right.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "espalier/tensor/layout.h"

namespace espalier::lanes {

class LaneParameter {
 public:
  LaneParameter() = default;  // none: a layer without a bias
  // [L,...] zeros. options: device and master type (f32, or f64); compute: the type that layers compute in.
  LaneParameter(at::IntArrayRef sizes, const at::TensorOptions& options, at::ScalarType compute);

  bool defined() const { return storage_.defined(); }

  // A leaf that has its gradient from birth: autograd would lay the first one out as contiguous, since a
  // stack with gaps between its lanes is not dense. See lane_backward().
  const at::Tensor& value() const { return value_; }  // [L,...] master
  const at::Tensor& compute() const {
    return compute_;
  }  // [L,...]; the values' memory where the types are one
  const at::Tensor& gradient() const { return value_.grad(); }  // [L,...] master type

  // The compute copy follows the values: after they were initialised or loaded. Optimisers do it themselves.
  void refresh() const;

  // Makes value(), compute() and gradient() the first `lanes` entries. value() is then another leaf.
  void use_lanes(int64_t lanes);
  const at::Tensor& storage() const { return storage_; }  // [all,...] master values of all entries

  // Moves to the other memory format: five axes only, others have one. Addresses change.
  void set_format(MemoryFormat format);

 private:
  at::Tensor storage_;           // [all,...] master
  at::Tensor gradient_storage_;  // [all,...] master
  at::Tensor compute_storage_;   // [all,...] compute type, or undefined: the master's own
  at::Tensor value_;
  at::Tensor compute_;
};

// A layer's parameter with its name in the layer: "weight".
struct NamedParameter {
  std::string name;
  LaneParameter* parameter = nullptr;
};

// The parameters of a layer with a prefix to their names: "conv." gives "conv.weight".
void append_parameters(std::vector<NamedParameter>& to, const std::string& prefix,
                       const std::vector<NamedParameter>& from);

// The parameters alone.
std::vector<LaneParameter*> without_names(const std::vector<NamedParameter>& named);

}  // namespace espalier::lanes
