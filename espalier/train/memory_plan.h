// What a run will take on its device, known before it starts: `espalier plan` prints it, and every trainer
// checks it. Parts are estimates from shapes; the CUDA context is measured.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace espalier::train {

struct MemoryPart {
  std::string what;  // "data", "batch ring", ...
  int64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;
  int64_t context_bytes = 0;  // what CUDA itself took when it started: on top of any cap, and no longer free
  int64_t budget_bytes = 0;   // free now, or the cap where that is less; 0: not known (a CPU device)

  int64_t total_bytes() const;
};

// What a program may allocate on the device: what is free, and no more than `cap_bytes` (0: no cap).
int64_t device_budget(c10::Device device, int64_t cap_bytes);

// The parts of a run with what the device has: its budget, and what CUDA itself took.
MemoryPlan with_budget(MemoryPlan parts, c10::Device device, int64_t cap_bytes);

// Before anything else starts CUDA there: so that what that takes is known, and torch's allocator keeps to
// the cap (0: none). The CUDA context and captured graphs come on top.
void claim_device(c10::Device device, int64_t cap_bytes);

// Fails, naming the parts, what is free and what to lower, where the plan does not fit.
void check_fits(const MemoryPlan& plan, const std::string& remedy);

// The largest count in [1, most] whose bytes fit the budget; 0 where not even 1 does. `bytes_of` must not
// decrease.
int64_t largest_fitting(const std::function<int64_t(int64_t)>& bytes_of, int64_t budget_bytes, int64_t most);

}  // namespace espalier::train
