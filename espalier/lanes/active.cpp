#include "espalier/lanes/active.h"

namespace espalier::lanes {
namespace {

thread_local ActiveLanes* innermost = nullptr;
thread_local const at::Tensor* innermost_entries = nullptr;

}  // namespace

ActiveLanes::ActiveLanes(at::Tensor entries) : entries_(std::move(entries)), outer_(innermost) {
  TORCH_CHECK(entries_.dim() == 1 && entries_.scalar_type() == at::kLong && entries_.is_contiguous(),
              "ActiveLanes: entries: want [E] int64, got ", entries_.sizes(), " ", entries_.scalar_type());
  innermost = this;
  innermost_entries = &entries_;
}

ActiveLanes::~ActiveLanes() {
  innermost = outer_;
  innermost_entries = outer_ ? &outer_->entries_ : nullptr;
}

at::Tensor active_entries(int64_t lanes) {
  return innermost_entries && innermost_entries->size(0) == lanes ? *innermost_entries : at::Tensor();
}

bool is_active(const at::Tensor& entries, int64_t lane) {
  return !entries.defined() || !entries.is_cpu() || entries.const_data_ptr<int64_t>()[lane] >= 0;
}

}  // namespace espalier::lanes
