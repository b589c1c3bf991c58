// What a run will take on its device, known before it starts: `espalier plan` prints it, and every trainer
// checks it. Parts follow from shapes; what no shape tells stands in allowances.h; the CUDA context is
// measured.
//
// Kept true: a plan covers the most that a run may ever need: with growth, every blueprint in every slot has
// had its turn, and as many seeds stand as a lane may hold, the heaviest of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace espalier::train {

enum class MemoryPlace {
  kDevice,  // from torch's allocator
  kDriver,  // on the device too, by CUDA and its libraries: no cap holds for it
  kHost,    // pinned memory of the host
};

struct MemoryPart {
  std::string what;  // "data", "batches", ...
  int64_t bytes = 0;
  MemoryPlace place = MemoryPlace::kDevice;
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;
  int64_t context_bytes = 0;  // what CUDA itself took when it started: on top of any cap, and no longer free
  int64_t budget_bytes = 0;   // for total_bytes(); 0: not known (a CPU device)
  std::vector<std::string> unknown = {};  // what else will be there, of which nothing is known beforehand

  // Parts of no bytes are left out.
  void add(std::string what, int64_t bytes, MemoryPlace place = MemoryPlace::kDevice);
  // All of another's; parts of one name become one.
  void add(const MemoryPlan& other);

  int64_t bytes_in(MemoryPlace place) const;
  int64_t total_bytes() const;  // on the device
};

// How a step runs: what that takes besides its tensors.
struct StepNeeds {
  at::Device device = at::kCPU;
  int64_t peak_bytes = 0;   // in flight at once: of a step, or of an evaluation on the same graphs' memory
  int64_t graph_bytes = 0;  // blocks that captured graphs hold for the same (step_tape.h)
  bool graphs = true;       // captures; on the CPU it never does
  int64_t num_graphs = 2;   // kept at once
  bool has_convolutions = true;  // that cuDNN may do
  bool has_products = false;     // by cuBLAS
  bool times_products = false;   // as a way to do convolutions
};
// Activations, eagerly and in the captured graphs' own memory; workspaces; the graphs themselves.
MemoryPlan step_parts(const std::string& name, const StepNeeds& needs);
// What any run on the device takes, once.
MemoryPlan device_parts(at::Device device);

// Bytes of a master value, a gradient, a momentum: fp32, whatever a step computes in.
inline constexpr int64_t kMasterBytes = 4;

// The product of sizes; what no memory could hold is told as 256 TiB, so that sums of thousands of tensors
// fit into 63 bits.
int64_t bounded_bytes(std::initializer_list<int64_t> sizes);

// Stacked [L,...] with lanes of these sizes, bounded too: every lane begins on its own line
// (tensor/layout.h).
int64_t stacked_bytes(int64_t lanes, std::initializer_list<int64_t> sizes, int64_t item_bytes);

// What a program may allocate on the device: what is free, and no more than `cap_bytes` (0: no cap).
int64_t device_budget(c10::Device device, int64_t cap_bytes);

// The parts of a run with what the device has: its budget, and what CUDA itself took.
MemoryPlan with_budget(MemoryPlan parts, c10::Device device, int64_t cap_bytes);

// Before anything else starts CUDA there: so that what that takes is known, and torch's allocator keeps to
// the cap (0: none). The CUDA context and what the driver takes come on top.
void claim_device(c10::Device device, int64_t cap_bytes);

// Fails, naming the parts, what is free and what to lower, where the plan does not fit.
void check_fits(const MemoryPlan& plan, const std::string& remedy);

// A count in [1, most] whose bytes fit the budget while those of one more do not; `most` where it fits, 0
// where not even 1 does. The largest, unless `bytes_of` decreases somewhere, as blocks that happen to fit
// each other may let it.
int64_t largest_fitting(const std::function<int64_t(int64_t)>& bytes_of, int64_t budget_bytes, int64_t most);

}  // namespace espalier::train
