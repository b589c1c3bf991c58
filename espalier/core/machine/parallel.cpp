#include "espalier/core/machine/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "espalier/core/machine/interrupt.h"

namespace espalier {

int num_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t num_ranges = (count + grain - 1) / grain;
  std::atomic<int64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr first_error;
  int64_t first_error_range = num_ranges;

  auto work = [&] {
    while (!stop.load(std::memory_order_relaxed)) {
      const int64_t range = next.fetch_add(1, std::memory_order_relaxed);
      if (range >= num_ranges) return;
      try {
        throw_if_interrupted();
        body(range * grain, std::min(count, (range + 1) * grain));
      } catch (...) {
        stop = true;
        const std::lock_guard lock(mutex);
        if (range < first_error_range) {
          first_error_range = range;
          first_error = std::current_exception();
        }
      }
    }
  };

  const auto num_threads = static_cast<size_t>(std::min<int64_t>(num_cores(), num_ranges));
  std::vector<std::jthread> helpers;
  helpers.reserve(num_threads - 1);
  for (size_t i = 1; i < num_threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();  // joins
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace espalier
