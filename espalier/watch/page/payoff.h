// Did growing pay? The networks of a run at their end: those that kept seeds against those that kept none.
//
// Kept true: accuracy is the test split's where the run has measured it, else the last validation's, and
// `measure` says which; of a policy's run only the last round that is complete counts, since the policy
// changes from round to round; a verdict is given only where both groups have two lanes or more. A lane that
// kept none but ends with a seed blended in, still on trial, is in neither group.
#pragma once

#include <nlohmann/json.hpp>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

// null where the run has no lanes. page/README.md lists the keys.
nlohmann::ordered_json payoff_of(const RunRecord& run);

}  // namespace espalier::watch
