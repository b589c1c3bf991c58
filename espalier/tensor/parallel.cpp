// The one file that is compiled with OpenMP (cmake/openmp.cmake): without, torch's header makes a plain loop.
#include "espalier/tensor/parallel.h"

#include <ATen/Parallel.h>

namespace espalier {

void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
  at::parallel_for(begin, end, grain, [&](int64_t first, int64_t last) { body(first, last); });
}

}  // namespace espalier
