// What the controller chose: how often each operation, by step and by round, and which blueprints it planted.
//
// Kept true: only decisions count: a lane that failed or is retired was not asked, and after the last step of
// an episode nobody is.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

enum class ChoicesBy : uint8_t { kStep, kRound };

// {"from":[...],"to":[...],"counts":[[one per operation],...],"planted":[how often each of the run's
// blueprints]}: neighbours are counted together where there are many. null where only waiting was chosen.
nlohmann::ordered_json choices_of(const RunRecord& run, std::span<const LaneLine* const> lines, ChoicesBy by);

}  // namespace espalier::watch
