// Lanes that are empty: a stack of seeds has room for more entries than it holds, and the lane ops leave
// the empty ones out.
//
// While an ActiveLanes lives, lane ops of the same thread over as many lanes as `entries` has skip those
// whose entry is negative: their outputs are not written, and nothing of them may be read. A backward pass
// remembers what its forward pass skipped. Nested ones hide each other.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::lanes {

class ActiveLanes {
 public:
  explicit ActiveLanes(at::Tensor entries);  // [E] i64, on the ops' device; negative: empty
  ~ActiveLanes();
  ActiveLanes(const ActiveLanes&) = delete;
  ActiveLanes& operator=(const ActiveLanes&) = delete;

 private:
  at::Tensor entries_;
  ActiveLanes* outer_;
};

// [lanes] i64, or undefined where all lanes are there.
at::Tensor active_entries(int64_t lanes);

// Whether a CPU loop over lanes has to do this one. Entries on a device are not read: there, kernels decide.
bool is_active(const at::Tensor& entries, int64_t lane);

}  // namespace espalier::lanes
