// The same values in every way that they may lie in memory.
#pragma once

#include <torch/torch.h>

#include <limits>
#include <string>
#include <vector>

#include "espalier/lanes/stack.h"
#include "espalier/tensor/layout.h"

namespace espalier::lanes::testing {

inline const char* name_of(MemoryFormat format) {
  return format == MemoryFormat::kChannelsLast ? "channels-last" : "contiguous";
}

inline at::Tensor laid_in(const at::Tensor& values, MemoryFormat format) {
  const at::Tensor laid = empty_lanes(values.sizes(), values.options(), format);
  return laid.copy_(values);
}

struct Laid {
  std::string name;
  at::Tensor tensor;
};

// Nobody hears of what a network's entry converts while one lives.
class NoWarnings : public c10::WarningHandler {
 public:
  NoWarnings() : guard_(this) {}
  void process(const c10::Warning& /*warning*/) override {}

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

// Dense lanes: as both formats write them, as torch does, and with strides of axes of one element that mean
// nothing: whatever a slice, an expansion or a reshape left there.
inline std::vector<Laid> dense_layouts(const at::Tensor& values) {
  std::vector<Laid> all{{"torch's own", values.clone(c10::MemoryFormat::Contiguous)}};
  for (const MemoryFormat format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    const at::Tensor laid = laid_in(values, format);
    all.push_back({name_of(format), laid});
    for (const int64_t first : {0, 3}) {
      std::vector<int64_t> strides = laid.strides().vec();
      int64_t next = first;
      for (size_t axis = 0; axis < strides.size(); ++axis) {
        if (laid.size(static_cast<int64_t>(axis)) != 1) continue;
        strides[axis] = next;
        next += first == 0 ? 0 : 4;
      }
      all.push_back({std::string(name_of(format)) + (first == 0 ? ", zero strides" : ", odd strides"),
                     laid.as_strided(laid.sizes(), strides)});
    }
  }
  return all;
}

// Those, and slices of something larger in every axis: what only the entry of a network takes.
inline std::vector<Laid> every_layout(const at::Tensor& values) {
  std::vector<Laid> all = dense_layouts(values);
  for (const MemoryFormat format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    std::vector<int64_t> sizes = values.sizes().vec();
    for (int64_t& size : sizes) size += 2;
    at::Tensor slice = empty_lanes(sizes, values.options(), format);
    slice.fill_(std::numeric_limits<double>::quiet_NaN());
    for (int64_t axis = 0; axis < values.dim(); ++axis) slice = slice.narrow(axis, 1, values.size(axis));
    all.push_back({std::string(name_of(format)) + ", sliced", slice.copy_(values)});
  }
  return all;
}

}  // namespace espalier::lanes::testing
