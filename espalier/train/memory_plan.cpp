#include "espalier/train/memory_plan.h"

#include <algorithm>

#include "espalier/core/byte_size.h"
#include "espalier/core/device_memory.h"
#include "espalier/core/error.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace espalier::train {

int64_t MemoryPlan::total_bytes() const {
  int64_t total = 0;
  for (const MemoryPart& part : parts) total += part.bytes;
  return total;
}

int64_t device_budget(c10::Device device, int64_t cap_bytes) {
  if (device.is_cpu()) return 0;
  const auto memory = cuda_memory(device.index());
  if (!memory) return cap_bytes;
  return cap_bytes > 0 ? std::min(cap_bytes, memory->free_bytes) : memory->free_bytes;
}

MemoryPlan with_budget(MemoryPlan parts, c10::Device device, int64_t cap_bytes) {
  parts.context_bytes = device.is_cpu() ? 0 : measure_cuda_context(device.index());
  parts.budget_bytes = device_budget(device, cap_bytes);
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
