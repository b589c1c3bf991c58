#if ESPALIER_WITH_CUDA
#include "espalier/lanes/optim/parameter_table.h"

#include "espalier/lanes/launch.h"

namespace espalier::lanes {

bool takes_update_kernel(const std::vector<LaneParameter*>& parameters) {
  const at::Tensor& first = parameters.at(0)->value();
  return first.is_cuda() && (first.scalar_type() == at::kFloat || first.scalar_type() == at::kDouble);
}

void for_tables(const std::vector<LaneParameter*>& parameters,
                const std::function<void(ParameterEntry&, size_t)>& fill,
                const std::function<void(const ParameterTable&, size_t)>& launch) {
  const at::Tensor& any = parameters.at(0)->value();
  const int64_t lanes = any.size(0);
  if (lanes == 0) return;
  const c10::cuda::CUDAGuard guard(any.device());
  ParameterTable table;
  table.lanes = static_cast<int32_t>(lanes);
  table.is_double = any.scalar_type() == at::kDouble;
  size_t first = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const LaneParameter& parameter = *parameters[i];
    const at::Tensor &value = parameter.value(), &copy = parameter.compute();
    ParameterEntry& entry = table.entry[table.num_entries++];
    entry = {.value = value.data_ptr(),
             .gradient = parameter.gradient().data_ptr(),
             .lane_stride = value.stride(0),
             .values = value.numel() / lanes};
    if (copy.scalar_type() != value.scalar_type()) {
      TORCH_CHECK(copy.scalar_type() == at::kBFloat16 || copy.scalar_type() == at::kHalf,
                  "LaneParameter: compute: want bf16 or f16 on CUDA, or the master's type, got ",
                  copy.scalar_type());
      entry.copy = copy.data_ptr();
      entry.copy_stride = copy.stride(0);
      table.copy_type = kernel_type(copy);
    }
    if (fill) fill(entry, i);
    if (table.num_entries == kMostParameters || i + 1 == parameters.size()) {
      launch(table, first);
      table.num_entries = 0;
      first = i + 1;
    }
  }
}

}  // namespace espalier::lanes
#endif
