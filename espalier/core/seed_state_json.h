// A slot's state in JSON, by names: part of the format of checkpoints and of exported networks.
#pragma once

#include <nlohmann/json.hpp>

#include "espalier/core/seed_stage.h"

namespace espalier {

void to_json(nlohmann::ordered_json& json, const SlotState& state);
// Throws nlohmann's exceptions, or std::invalid_argument, for what is no state: readers name the place.
void from_json(const nlohmann::ordered_json& json, SlotState& state);

}  // namespace espalier
