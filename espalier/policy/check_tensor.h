// Checks arguments of the policy's operators: one sentence for what does not fit.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::policy {

class TensorChecker {
 public:
  TensorChecker(const char* function, at::Device device) : function_(function), device_(device) {}

  void shape(const at::Tensor& tensor, const char* argument, at::IntArrayRef sizes,
             at::ScalarType type) const {
    TORCH_CHECK(tensor.defined(), function_, ": ", argument, ": want ", sizes, " ", type, ", got nothing");
    // Any GPU where the device is given without its number.
    const bool here =
        tensor.device().type() == device_.type() && (!device_.has_index() || tensor.device() == device_);
    TORCH_CHECK(tensor.sizes() == sizes && tensor.scalar_type() == type && here, function_, ": ", argument,
                ": want ", sizes, " ", type, " on ", device_, ", got ", tensor.sizes(), " ",
                tensor.scalar_type(), " on ", tensor.device());
  }
  void dense(const at::Tensor& tensor, const char* argument, at::IntArrayRef sizes,
             at::ScalarType type) const {
    shape(tensor, argument, sizes, type);
    TORCH_CHECK(tensor.is_contiguous(), function_, ": ", argument, ": want it dense, got strides ",
                tensor.strides());
  }

 private:
  const char* function_;
  at::Device device_;
};

}  // namespace espalier::policy
