// What the page (page/) draws, as JSON: a run's curves, timeline and results, thinned so that the page stays
// small however long the run was. page/README.md lists the keys.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

nlohmann::ordered_json page_data(const RunRecord& run);

// Several runs side by side: what they have in common is left out.
nlohmann::ordered_json comparison_data(std::span<const RunRecord> runs);

// The keys of the configuration that are not the same in all runs, each with a value per run (null: not set).
// --run-dir is not among them.
nlohmann::ordered_json differing_options(std::span<const RunRecord> runs);

}  // namespace espalier::watch
