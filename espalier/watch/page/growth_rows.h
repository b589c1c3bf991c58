// The growth timeline: which seed lived where and when.
//
// Kept true: a row is one slot of one lane that ever held a seed; its segments follow each other, do not
// overlap, and name the stage the slot was in after each of their steps. A dormant slot has no segment.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

// For lines of one round (or of a run without rounds), of the lanes in `lanes` (sorted):
// [{"lane":0,"slot":2,"segments":[[first step, last step, stage, blueprint or -1],...]},...]
nlohmann::ordered_json growth_rows(const RunRecord& run, std::span<const LaneLine* const> lines,
                                   std::span<const int64_t> lanes);

}  // namespace espalier::watch
