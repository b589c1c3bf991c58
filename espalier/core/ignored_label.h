// The label of a sample that does not exist, such as the empty rest of a last batch: it counts in no loss
// and no score.
#pragma once

#include <cstdint>

namespace espalier {

constexpr int64_t kIgnoredLabel = -100;  // torch's ignore_index

}  // namespace espalier
