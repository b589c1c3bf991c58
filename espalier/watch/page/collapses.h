// Networks that collapsed and went back to their last good state, or were given up: when, why, and what may
// not be tried again.
#pragma once

#include <nlohmann/json.hpp>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

// null where none did. page/README.md lists the keys.
nlohmann::ordered_json collapses_of(const RunRecord& run);

}  // namespace espalier::watch
