// What `espalier evaluate` found: controllers side by side, and pair by pair against the first.
#pragma once

#include <nlohmann/json.hpp>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

// null where the run is no evaluation. page/README.md lists the keys.
nlohmann::ordered_json evaluation_of(const RunRecord& run);

}  // namespace espalier::watch
