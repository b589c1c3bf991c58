// Runs a loop on all cores, without torch: for the readers, which work before any tensor exists.
#pragma once

#include <cstdint>
#include <functional>

namespace espalier {

// Calls body(begin, end) for consecutive ranges of at most `grain` items that cover [0, count), on up to
// num_cores() threads, the calling one among them. The first exception (of the lowest range that threw) is
// thrown again here after all threads have stopped; ranges not yet begun are then left out. Between ranges a
// pending Ctrl-C is thrown (interrupt.h).
void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// Cores this process may use (its affinity mask), at least 1.
int num_cores();

}  // namespace espalier
