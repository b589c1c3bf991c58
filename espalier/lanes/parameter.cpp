#include "espalier/lanes/parameter.h"

#include <c10/core/GradMode.h>

#include "espalier/lanes/stack.h"

namespace espalier::lanes {

LaneParameter::LaneParameter(at::IntArrayRef sizes, const at::TensorOptions& options, at::ScalarType compute)
    : storage_(zero_lanes(sizes, options)), gradient_storage_(zero_lanes(sizes, options)) {
  if (compute != storage_.scalar_type()) compute_storage_ = zero_lanes(sizes, options.dtype(compute));
  use_lanes(sizes[0]);
}

void LaneParameter::use_lanes(int64_t lanes) {
  TORCH_CHECK(lanes >= 0 && lanes <= storage_.size(0), "LaneParameter: lanes: want 0 to ", storage_.size(0),
              ", got ", lanes);
  value_ = storage_.narrow(0, 0, lanes).detach();
  value_.mutable_grad() = gradient_storage_.narrow(0, 0, lanes);
  value_.set_requires_grad(true);
  compute_ = compute_storage_.defined() ? compute_storage_.narrow(0, 0, lanes) : value_.detach();
}

void LaneParameter::refresh() const {
  const c10::NoGradGuard no_grad;
  if (compute_storage_.defined()) compute_storage_.copy_(storage_);
}

void LaneParameter::set_format(MemoryFormat format) {
  if (!defined() || storage_.dim() != 5) return;
  const c10::NoGradGuard no_grad;
  const int64_t lanes = value_.size(0);
  for (at::Tensor* tensor : {&storage_, &gradient_storage_, &compute_storage_}) {
    if (!tensor->defined()) continue;
    const at::Tensor moved = zero_lanes(tensor->sizes(), tensor->options(), format);
    moved.copy_(*tensor);
    *tensor = moved;
  }
  use_lanes(lanes);
}

void append_parameters(std::vector<NamedParameter>& to, const std::string& prefix,
                       const std::vector<NamedParameter>& from) {
  for (const NamedParameter& named : from) to.push_back({prefix + named.name, named.parameter});
}

std::vector<LaneParameter*> without_names(const std::vector<NamedParameter>& named) {
  std::vector<LaneParameter*> parameters;
  for (const NamedParameter& each : named) parameters.push_back(each.parameter);
  return parameters;
}

}  // namespace espalier::lanes
