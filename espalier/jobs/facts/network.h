// What a run records about its networks besides their values, so that they can be taken out of its
// checkpoints.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "espalier/data/resident.h"
#include "espalier/grow/description.h"
#include "espalier/grow/network_stack.h"
#include "espalier/train/population/config.h"

namespace espalier::jobs {

// Keys of environment.json.
inline constexpr const char* kNetworkFact = "network";        // a description without seeds
inline constexpr const char* kSlotsFact = "slots";            // names, by action index
inline constexpr const char* kBlueprintsFact = "blueprints";  // names, by number

// The bare network of a job with this data; run and program are filled in.
grow::NetworkDescription described_network(const train::PopulationConfig& options,
                                           const data::ResidentDataset& dataset, const std::string& run);

// Adds the three facts.
void add_network_facts(nlohmann::ordered_json& environment, const grow::NetworkDescription& network,
                       const grow::NetworkStack& population);

}  // namespace espalier::jobs
