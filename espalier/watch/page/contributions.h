// What each seed was measured to bring: accuracy of its network with it minus without it, over time.
//
// Kept true: a curve is one seed's, from its germination to its end: a slot that is planted again has another
// curve; only what was measured is a point.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

// For lines of one round (or of a run without rounds), of the lanes in `lanes` (sorted):
// [{"lane":0,"slot":"r0c1","blueprint":"conv_light","x":[steps],"y":[points]},...]
nlohmann::ordered_json contributions_of(const RunRecord& run, std::span<const LaneLine* const> lines,
                                        std::span<const int64_t> lanes);

}  // namespace espalier::watch
