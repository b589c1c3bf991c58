// Work on the CPU that torch's threads share.
//
// Kept true:
// - Every index is in exactly one call of the body, which is given about `grain` of them, or more. Where
//   threads are of no use (few indices, one thread, inside another body) the caller makes one call itself.
// - All calls have ended on return. What a body throws arrives at the caller; of several exceptions, one.
// - Where one call ends and the next begins depends on the number of threads: a body adds nothing up across
//   indices, so that the same bits come of any number.
// - Other threads know nothing of the caller's modes (gradients, ActiveLanes): a body works on memory, and
//   calls no operator.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace espalier {

// Values that a loop over memory should give a thread: waking one takes as long as some ten thousand.
inline constexpr int64_t kThreadValues = 1 << 15;

// body(first, last): indices [first, last) of [begin, end).
void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body);

}  // namespace espalier
