// Accuracy against size: every network at its end, and those that no other beats in both.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "espalier/watch/page/selection.h"

namespace espalier::watch {

// rounds: the run's lines by round. Accuracy is the test split's where every network shown was tested.
nlohmann::ordered_json frontier_of(const RunRecord& run, const std::map<int64_t, Lines>& rounds);

}  // namespace espalier::watch
