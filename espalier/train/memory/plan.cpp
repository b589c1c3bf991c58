#include "espalier/train/memory/plan.h"

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/machine/device_memory.h"
#include "espalier/core/size_product.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/tensor/layout.h"
#include "espalier/train/memory/allowances.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace espalier::train {

void MemoryPlan::add(std::string what, int64_t bytes, MemoryPlace place) {
  TORCH_INTERNAL_ASSERT(bytes >= 0, "the plan of memory: ", what, ": ", bytes, " bytes");
  if (bytes > 0) parts.push_back({std::move(what), bytes, place});
}

void MemoryPlan::add(const MemoryPlan& other) {
  for (const MemoryPart& part : other.parts) {
    const auto same = std::ranges::find_if(
        parts, [&](const MemoryPart& own) { return own.what == part.what && own.place == part.place; });
    if (same == parts.end())
      parts.push_back(part);
    else
      same->bytes = saturated_sum(same->bytes, part.bytes);
  }
  for (const std::string& what : other.unknown)
    if (std::ranges::find(unknown, what) == unknown.end()) unknown.push_back(what);
}

int64_t MemoryPlan::bytes_in(MemoryPlace place) const {
  int64_t total = 0;
  for (const MemoryPart& part : parts)
    if (part.place == place) total = saturated_sum(total, part.bytes);
  return total;
}

int64_t MemoryPlan::total_bytes() const {
  return saturated_sum(bytes_in(MemoryPlace::kDevice), bytes_in(MemoryPlace::kDriver));
}

MemoryPlan step_parts(const std::string& name, const StepNeeds& needs) {
  MemoryPlan plan;
  plan.add("activations of " + name, needs.peak_bytes);
  if (needs.device.is_cpu()) return plan;
  // A step runs eagerly before it is captured, and whenever a signature is new: what captured graphs hold
  // is theirs for as long as they are kept.
  if (needs.graphs) plan.add("captured graphs of " + name, needs.graph_bytes);
  if (needs.has_convolutions) {
    const int64_t workspace = allowance::kConvolutionWorkspaceBytes;
    plan.add("workspaces of convolutions", needs.graphs ? 2 * workspace : workspace);
  }
  if (needs.has_products) {
    const int64_t streams = needs.times_products ? 2 : 1;
    plan.add("workspaces of cuBLAS",
             streams * allowance::kHandlesOfAStream * allowance::kCublasWorkspaceBytes);
    plan.add("rests of blocks that workspaces were cut out of", allowance::kRestsBesideWorkspacesBytes);
    plan.add("loaded kernels of cuBLAS", allowance::kCublasKernelsBytes, MemoryPlace::kDriver);
  }
  if (needs.graphs)
    plan.add("captured graphs, as CUDA keeps them", needs.num_graphs * allowance::kGraphBytes,
             MemoryPlace::kDriver);
  return plan;
}

MemoryPlan device_parts(at::Device device) {
  MemoryPlan plan;
  if (device.is_cpu()) return plan;
  plan.add("rounding of the allocator", allowance::kAllocatorRoundingBytes);
  plan.add("loaded kernels", allowance::kLoadedKernelsBytes, MemoryPlace::kDriver);
  return plan;
}

int64_t bounded_bytes(std::initializer_list<int64_t> sizes) {
  constexpr int64_t kMost = int64_t{1} << 48;
  return std::min(kMost, saturated_product(sizes));
}

int64_t stacked_bytes(int64_t lanes, std::initializer_list<int64_t> sizes, int64_t item_bytes) {
  const int64_t lane = bounded_bytes({bounded_bytes(sizes), item_bytes});
  const int64_t lines = (lane + kLaneAlignmentBytes - 1) / kLaneAlignmentBytes;
  return bounded_bytes({lanes, lines, kLaneAlignmentBytes});
}

int64_t device_budget(c10::Device device, int64_t cap_bytes) {
  if (device.is_cpu()) return 0;
  const auto memory = cuda_memory(device.index());
  if (!memory) return cap_bytes;
  return cap_bytes > 0 ? std::min(cap_bytes, memory->free_bytes) : memory->free_bytes;
}

MemoryPlan with_budget(MemoryPlan parts, c10::Device device, int64_t cap_bytes) {
  parts.context_bytes = device.is_cpu() ? 0 : measure_cuda_context(device.index());
  // What the driver takes is under no cap.
  const int64_t cap = cap_bytes > 0 ? cap_bytes + parts.bytes_in(MemoryPlace::kDriver) : 0;
  parts.budget_bytes = device_budget(device, cap);
  return parts;
}

void claim_device([[maybe_unused]] c10::Device device, [[maybe_unused]] int64_t cap_bytes) {
#if ESPALIER_WITH_CUDA
  if (device.is_cpu()) return;
  measure_cuda_context(device.index());
  if (cap_bytes <= 0) return;
  const auto memory = cuda_memory(device.index());
  if (!memory) return;
  const double fraction = static_cast<double>(cap_bytes) / static_cast<double>(memory->total_bytes);
  c10::cuda::CUDACachingAllocator::get()->init(static_cast<int>(device.index()) + 1);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(1.0, fraction), device.index());
#endif
}

void check_fits(const MemoryPlan& plan, const std::string& remedy) {
  if (plan.budget_bytes == 0 || plan.total_bytes() <= plan.budget_bytes) return;
  std::string parts;
  for (const MemoryPart& part : plan.parts)
    if (part.place != MemoryPlace::kHost)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.what, format_byte_size(part.bytes));
  fail("this run needs {} on the device ({}), and {} may be used; {}", format_byte_size(plan.total_bytes()),
       parts, format_byte_size(plan.budget_bytes), remedy);
}

int64_t largest_fitting(const std::function<int64_t(int64_t)>& bytes_of, int64_t budget_bytes, int64_t most) {
  int64_t fits = 0, fails = most + 1;
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (bytes_of(middle) <= budget_bytes ? fits : fails) = middle;
  }
  return fits;
}

}  // namespace espalier::train
